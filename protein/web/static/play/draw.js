// The games as a person sees and plays them: for each its picture, its pace, and what its actions are called.
//
//   const game = look(world);                      // one of GAMES, or what is known of any environment
//   draw(context, game, state, observation, width, height);   // onto width x height pixels of a canvas
//
// Pictures are drawn from the fields of the environment's own state, which are named as in its C header. Colours and
// proportions are those of envs_c/drawing.py, which draws the GIFs. Courts have x and y upwards, in the header's units.

const BACKGROUND = "#12141c";
const FAINT = "#343948";
const LIGHT = "#eceff4";
const AMBER = "#ffc454";
const BLUE = "#5eaaff";
const GREEN = "#6cd682";
const RED = "#ff6b6b";
const VIOLET = "#be8cff";
const TILES = [[236, 239, 244], [255, 196, 84], [255, 107, 107], [190, 140, 255]]; // from small to large
const MOST_BARS = 96;

/** A picture in the coordinates of a court: x from -wide to +wide, y from -high to +high, as large as it fits. */
class Court {
  constructor(context, wide, high, width, height) {
    const scale = Math.min(width / wide, height / high) / 2;
    Object.assign(this, { context, scale, wide, high, middle: [width / 2, height / 2] });
  }

  at(x, y) {
    return [this.middle[0] + x * this.scale, this.middle[1] - y * this.scale];
  }

  box(x, y, halfWidth, halfHeight, colour, radius = 0) {
    const [left, top] = this.at(x - halfWidth, y + halfHeight);
    const [width, height] = [2 * halfWidth * this.scale, 2 * halfHeight * this.scale];
    this.context.fillStyle = colour;
    this.context.beginPath();
    this.context.roundRect(left, top, width, height, Math.min(radius * this.scale, width / 2, height / 2));
    this.context.fill();
  }

  disc(x, y, radius, colour) {
    this.context.fillStyle = colour;
    this.context.beginPath();
    this.context.arc(...this.at(x, y), radius * this.scale, 0, 2 * Math.PI);
    this.context.fill();
  }

  line(from, to, width, colour) {
    this.context.strokeStyle = colour;
    this.context.lineWidth = width * this.scale;
    this.context.beginPath();
    this.context.moveTo(...this.at(...from));
    this.context.lineTo(...this.at(...to));
    this.context.stroke();
  }

  text(x, y, words, height, colour) {
    this.context.fillStyle = colour;
    this.context.font = `600 ${height * this.scale}px system-ui, sans-serif`;
    this.context.textAlign = "center";
    this.context.textBaseline = "middle";
    this.context.fillText(words, ...this.at(x, y));
  }

  /** Fills the court with cells, row 0 at the top. `colourOf(row, column)` returns null for one that stays empty. */
  cells(rows, columns, colourOf) {
    const [left, top] = this.at(-this.wide, this.high);
    const [wide, high] = [2 * this.wide * this.scale / columns, 2 * this.high * this.scale / rows];
    const edge = (begin, size, i) => Math.round(begin + i * size); // whole pixels: no seams between neighbours
    for (let row = 0; row < rows; row += 1) {
      const [y, bottom] = [edge(top, high, row), edge(top, high, row + 1)];
      for (let column = 0; column < columns; column += 1) {
        const colour = colourOf(row, column);
        if (!colour) continue;
        const x = edge(left, wide, column);
        this.context.fillStyle = colour;
        this.context.fillRect(x, y, edge(left, wide, column + 1) - x, bottom - y);
      }
    }
  }
}

function pong(court, state) {
  for (const y of [-1.06, 1.06]) court.box(0, y, 1.12, 0.01, FAINT);
  for (let i = 0; i < 16; i += 1) court.box(0, -0.95 + (i * 1.9) / 15, 0.008, 0.03, FAINT);
  court.text(-0.3, 0.85, `${state.opponent_points}`, 0.22, FAINT);
  court.text(0.3, 0.85, `${state.player_points}`, 0.22, FAINT);
  court.box(-1.04, state.opponent_y, 0.025, 0.1875, RED, 0.02);
  court.box(1.04, state.player_y, 0.025, 0.1875, GREEN, 0.02);
  court.disc(state.direction * (1 - state.frames_to_hit / 30), state.ball_y, 0.035, LIGHT);
}

/** Pong for two: agent 0 is the player, on the right. */
function pong2(court, { paddle_y: [player_y, opponent_y], points: [player_points, opponent_points], to, ball_y, frames_to_hit }) {
  pong(court, { player_y, opponent_y, player_points, opponent_points, direction: to ? -1 : 1, ball_y, frames_to_hit });
}

function breakout(court, state) {
  court.box(0, -0.02, 1.045, 1.06, FAINT);
  court.box(0, -0.04, 1.03, 1.07, BACKGROUND);
  for (let i = 0; i < 72; i += 1) {
    const [row, column] = [Math.floor(i / 12), i % 12];
    if (state.bricks[i]) court.box((column - 5.5) / 6, (8.5 + 2 * row) / 32, 1 / 12 - 0.008, 1 / 32 - 0.006, [BLUE, GREEN, AMBER][row >> 1], 0.01);
  }
  for (let ball = 0; ball < state.balls - 1; ball += 1) court.disc(-0.98 + 0.08 * ball, 1.07, 0.022, LIGHT); // in reserve
  court.box(state.paddle_x, -1.03, 0.15625, 0.025, LIGHT, 0.02);
  court.disc(state.ball_x, state.ball_line / 32, 0.03, RED);
}

function cartpole(court, { position, angle }) {
  court.box(0, -0.62, 2.4, 0.012, FAINT);
  for (const end of [-2.4, 2.4]) court.box(end, -0.62, 0.015, 0.12, FAINT);
  court.box(position, -0.5, 0.28, 0.12, BLUE, 0.05);
  court.line([position, -0.4], [position + 1.1 * Math.sin(angle), -0.4 + 1.1 * Math.cos(angle)], 0.08, AMBER);
  court.disc(position, -0.4, 0.05, LIGHT);
}

function pendulum(court, { angle, spin }) {
  const end = [-0.9 * Math.sin(angle), 0.9 * Math.cos(angle)]; // positive angles turn anticlockwise from upright
  court.disc(0, 0, 1.04, FAINT);
  court.disc(0, 0, 1.03, BACKGROUND);
  court.line([0, 0], end, 0.16, RED);
  court.disc(...end, 0.08, RED);
  court.disc(0, 0, 0.07, LIGHT);
  court.box(spin / 16, -1.14, Math.abs(spin) / 16, 0.025, VIOLET);
}

function g2048(court, { rows }) {
  for (let cell = 0; cell < 16; cell += 1) {
    const [row, column] = [cell >> 2, cell & 3];
    const exponent = (rows[row] >>> (8 * column)) & 255;
    const [x, y] = [(column - 1.5) * 0.52, (1.5 - row) * 0.52];
    court.box(x, y, 0.24, 0.24, tile(exponent), 0.04);
    if (!exponent) continue;
    const words = `${2 ** exponent}`;
    court.text(x, y, words, words.length < 3 ? 0.24 : 0.552 / words.length, BACKGROUND);
  }
}

/** From pale through amber to red and violet as tiles grow; faint for an empty cell. */
function tile(exponent) {
  if (exponent === 0) return FAINT;
  const place = Math.min((exponent - 1) / 11, 1) * (TILES.length - 1);
  const low = Math.min(Math.floor(place), TILES.length - 2);
  return `rgb(${TILES[low].map((value, i) => Math.floor(value + (TILES[low + 1][i] - value) * (place - low)))})`;
}

function memory(court, { shown, frames, frames_to_ask: wait }) {
  if (frames === 0) {
    court.box(0, 0, 1, 1, FAINT, 0.1);
    court.box(0, 0, 0.93, 0.93, BACKGROUND, 0.1);
  }
  court.disc(0, 0, 0.6, FAINT); // nothing is shown
  court.disc(0, 0, 0.58, BACKGROUND);
  if (wait === 0) court.text(0, 0, "?", 1, LIGHT);
  else if (shown < 4) {
    court.disc(0, 0, 0.6, [BLUE, GREEN, AMBER, RED][shown]);
    court.text(0, 0, "ABCD"[shown], 0.7, BACKGROUND);
  }
}

const MAZE = { side: 15, margin: 2, stride: 19 };

function maze(court, { cells, at, goal }) {
  const colours = [null, "#28423a", "#426854", FAINT, null]; // open, entered once, more often, wall, outside
  court.cells(MAZE.side, MAZE.side, (row, column) => {
    const cell = (row + MAZE.margin) * MAZE.stride + column + MAZE.margin;
    return cell === at ? GREEN : cell === goal ? AMBER : colours[cells[cell]];
  });
}

const SNAKE = { stride: 202, wall: 4, view: 36, ring: 128 }; // the walls' cells that are seen begin at `wall`

/** The surroundings of the first snake, which is green. The cells of the whole map would be too small to see. */
function snake(court, { bodies, map }) {
  const { stride, wall, view, ring } = SNAKE;
  const first = bodies.cells[bodies.head[0]];
  const [top, left] = [Math.floor(first / stride), first % stride].map((at) => Math.max(wall, Math.min(at - view / 2, stride - wall - view)));
  const colours = new Map();
  for (let body = 0; body < bodies.head.length; body += 1) {
    const [head, length] = [bodies.head[body], bodies.length[body]];
    for (let i = 0; i < length; i += 1) {
      colours.set(bodies.cells[body * ring + ((head - i + ring) % ring)], i === 0 ? LIGHT : body ? [BLUE, RED, VIOLET][body % 3] : GREEN);
    }
  }
  court.cells(view, view, (row, column) => {
    const cell = (top + row) * stride + left + column;
    return colours.get(cell) || [null, AMBER, FAINT][map[cell]] || null;
  });
}

/** An agent that has just acted is pale; one that is down is faint. The first one is green. */
function entities(court, state) {
  court.box(0, 0, 1.06, 1.06, FAINT);
  court.box(0, 0, 1.05, 1.05, BACKGROUND);
  for (let i = 0; i < state.crystal_x.length; i += 1) court.box(state.crystal_x[i], state.crystal_y[i], 0.013, 0.013, VIOLET);
  for (let i = 0; i < state.creature_x.length; i += 1) court.disc(state.creature_x[i], state.creature_y[i], 0.014 + (0.014 * state.creature_health[i]) / 3, RED);
  for (let i = state.agent_x.length - 1; i >= 0; i -= 1) {
    const [x, y, health] = [state.agent_x[i], state.agent_y[i], state.health[i] / 5];
    const colour = i === 0 ? GREEN : BLUE;
    court.disc(x, y, 0.04, health > 0 ? (state.wait[i] > 3 ? LIGHT : colour) : FAINT);
    court.box(x, y + 0.06, 0.05, 0.008, FAINT);
    court.box(x - 0.05 * (1 - health), y + 0.06, 0.05 * health, 0.008, colour);
  }
}

/** Agent 0 is green and its team blue. One that has just acted is pale; one that is down, or a crystal that grows, is faint. */
function arena(court, state) {
  court.box(0, 0, 1.06, 1.06, FAINT);
  court.box(0, 0, 1.05, 1.05, BACKGROUND);
  for (let i = 0; i < state.crystal_x.length; i += 1) court.box(state.crystal_x[i], state.crystal_y[i], 0.02, 0.02, state.growing[i] ? FAINT : VIOLET);
  for (let i = state.x.length - 1; i >= 0; i -= 1) {
    const [x, y, health] = [state.x[i], state.y[i], state.health[i] / 5];
    const colour = i === 0 ? GREEN : i < 4 ? BLUE : RED;
    court.disc(x, y, 0.04, health > 0 ? (state.wait[i] > 5 ? LIGHT : colour) : FAINT);
    court.box(x, y + 0.06, 0.05, 0.008, FAINT);
    court.box(x - 0.05 * (1 - health), y + 0.06, 0.05 * health, 0.008, colour);
  }
}

const FRONTIER = { margin: 5, view: 48, full: 4, edge: 16 };
const TRIBES = [BLUE, RED, AMBER, VIOLET];
const GOODS = [[108, 214, 130], [94, 170, 255], [190, 140, 90], [170, 176, 190]]; // food, water, wood, ore

/** The surroundings of one agent, which has a ring, or of its home where nobody lives; and all who live, small, in the corner. */
function frontier(court, { agents, ground, barrier, home }, observation, own) {
  const { margin, view, full, edge } = FRONTIER;
  const stride = Math.sqrt(ground.length);
  const side = stride - 2 * margin;
  const tribeOf = (slot) => Math.floor((slot * 4) / agents.at.length);
  const middle = agents.state[own] === 1 ? agents.at[own] : home[tribeOf(own)];
  const [top, left] = [Math.floor(middle / stride), middle % stride].map((at) => Math.max(margin - 1, Math.min(at - view / 2, stride - margin + 1 - view)));
  court.cells(view, view, (row, column) => {
    const cell = (top + row) * stride + left + column;
    if (barrier[cell]) return barrier[cell] === edge ? FAINT : `rgb(150 156 172 / ${0.3 + barrier[cell] / 20})`;
    const good = GOODS[(ground[cell] >> 4) - 1];
    const amount = ground[cell] & 15;
    return good && amount ? `rgb(${good.join(" ")} / ${0.35 + (0.25 * amount) / full})` : null; // as strong as in the GIFs
  });
  const tile = 2 / view;
  const at = (cell) => [((cell % stride) - left + 0.5) * tile - 1, 1 - (Math.floor(cell / stride) - top + 0.5) * tile];
  const inside = ([x, y]) => Math.abs(x) < 1 && Math.abs(y) < 1;
  for (const [tribe, cell] of home.entries()) {
    const place = at(cell);
    if (!inside(place)) continue;
    court.box(...place, 1.4 * tile, 1.4 * tile, TRIBES[tribe], 0.5 * tile);
    court.box(...place, 1.1 * tile, 1.1 * tile, BACKGROUND, 0.4 * tile);
  }
  for (let slot = agents.at.length - 1; slot >= 0; slot -= 1) {
    const place = at(agents.at[slot]);
    if (agents.state[slot] !== 1 || !inside(place)) continue;
    const colour = slot === own ? GREEN : TRIBES[tribeOf(slot)];
    if (slot === own) court.disc(...place, 0.8 * tile, LIGHT), court.disc(...place, 0.66 * tile, BACKGROUND);
    court.disc(...place, 0.42 * tile, agents.did[slot] > 2 ? LIGHT : colour); // builds, strikes or trades
    court.box(place[0], place[1] + 0.62 * tile, 0.45 * tile, 0.07 * tile, FAINT);
    court.box(place[0] - 0.45 * tile * (1 - agents.health[slot] / 8), place[1] + 0.62 * tile, (0.45 * tile * agents.health[slot]) / 8, 0.07 * tile, colour);
  }
  const [x, y, half] = [0.8, 0.8, 0.18]; // the whole land
  court.box(x, y, half + 0.006, half + 0.006, FAINT);
  court.box(x, y, half, half, BACKGROUND);
  const small = (cell) => [x + half * ((2 * ((cell % stride) - margin) + 1) / side - 1), y - half * ((2 * (Math.floor(cell / stride) - margin) + 1) / side - 1)];
  for (let slot = agents.at.length - 1; slot >= 0; slot -= 1) {
    if (agents.state[slot] === 1) court.box(...small(agents.at[slot]), 0.006, 0.006, slot === own ? GREEN : TRIBES[tribeOf(slot)]);
  }
}

/** Any environment: a bar for each number that the first agent observes, upwards where it is positive. */
function bars(court, state, observation) {
  const values = Array.from(observation.subarray(0, MOST_BARS), (value) => (Number.isFinite(value) ? value : 0));
  const limit = Math.max(1e-6, ...values.map(Math.abs));
  const width = 2.8 / values.length;
  court.box(0, 0, 1.4, 0.004, FAINT);
  for (const [i, value] of values.entries()) court.box(-1.4 + (i + 0.5) * width, (0.45 * value) / limit, 0.45 * width, (0.45 * Math.abs(value)) / limit, BLUE);
}

const STAY_UP_DOWN = [["stay"], ["up", "up"], ["down", "down"]];
const FOUR_WAYS = [["up", "up"], ["right", "right"], ["down", "down"], ["left", "left"]];

/**
 * What each game is like. A new one needs `picture`; all else has a default.
 *
 * - `size`: half the court's width and height, in its units.
 * - `framesPerSecond`: how many frames are pleasant to watch; physical games run at their own speed.
 * - `everyFrame`: one action held for k steps of a frame is the same as one step of k frames, so each frame can be shown.
 * - `moving`: fields whose values between two frames are shown, and by how much they may change before it is a jump.
 * - `sides`: how many there are, where several play against each other: the first of as many equal parts of the agents
 *   is the player's.
 * - `follow(state, agent, agents)`: whose place the player takes, where agents come and go: that of `agent` while it lives,
 *   else of another one. Without it the player is the first agent.
 * - `score(state, agent)`: the running episode's, where it is not the sum of the player's rewards.
 * - `actions`: for each component what its actions are called, in order, each with its key: a direction, or a character.
 *   One without a key is taken where no key is pressed.
 * - `idle(decisions)`: the action where all have keys and none is pressed. Without it the game waits for a key.
 * - `waits(state)`: whether it waits for a person's key at all; else it goes on.
 * - `steer(state, direction)`: the action for a direction (0 up, 1 right, 2 down, 3 left) where actions are turns.
 */
export const GAMES = {
  arena: {
    picture: arena, sides: 2, size: [1.1, 1.1], framesPerSecond: 20, moving: { x: 0.3, y: 0.3 }, score: ({ standing }) => standing[0] - standing[1],
    actions: [[["stay"], ["right", "right"], ["left", "left"]], STAY_UP_DOWN, [["do nothing"], ["strike nearest", "1"], ["strike 2nd", "2"], ["strike 3rd", "3"], ["strike 4th", "4"], ["mend", "5"]]],
  },
  breakout: {
    picture: breakout, size: [1.06, 1.1], framesPerSecond: 60, everyFrame: true, moving: { paddle_x: 0.1, ball_x: 0.1, ball_line: 2 },
    actions: [[["stay"], ["left", "left"], ["right", "right"]]],
  },
  cartpole: {
    picture: cartpole, size: [2.6, 1], framesPerSecond: 50, everyFrame: true, moving: { position: 0.3, angle: 0.3 },
    actions: [[["push left", "left"], ["push right", "right"]]], idle: (decisions) => decisions % 2, // pushes that cancel out
  },
  entities: {
    picture: entities, size: [1.1, 1.1], framesPerSecond: 20, moving: { agent_x: 0.3, agent_y: 0.3, creature_x: 0.2, creature_y: 0.2 },
    score: (state) => state.felled,
    actions: [[["stay"], ["right", "right"], ["left", "left"]], STAY_UP_DOWN, [["do nothing"], ["strike nearest", "1"], ["strike 2nd", "2"], ["strike 3rd", "3"], ["strike 4th", "4"], ["mend", "5"]]],
  },
  frontier: {
    picture: frontier, size: [1, 1], framesPerSecond: 10, score: ({ agents }, own) => agents.age[own],
    follow: ({ agents }, own, all) => (agents.state[own] === 1 ? own : Math.max(0, agents.state.subarray(0, all).indexOf(1))),
    actions: [[["stay"], ["north", "up"], ["east", "right"], ["south", "down"], ["west", "left"]],
      [["do nothing"], ["gather", "1"], ["consume", "2"], ["build", "3"], ["strike", "4"], ["trade", "5"]],
      [["here"], ["to the north", "i"], ["to the east", "l"], ["to the south", "k"], ["to the west", "j"]]],
  },
  g2048: { picture: g2048, size: [1.1, 1.1], framesPerSecond: 4, score: (state) => state.points, actions: [FOUR_WAYS], waits: () => true },
  maze: { picture: maze, size: [1, 1], framesPerSecond: 8, actions: [FOUR_WAYS], waits: () => true },
  memory: {
    picture: memory, size: [1.1, 1.1], framesPerSecond: 3,
    actions: [[["A", "1"], ["B", "2"], ["C", "3"], ["D", "4"]]], idle: () => 0, waits: (state) => state.frames_to_ask === 0,
  },
  pendulum: {
    picture: pendulum, size: [1.2, 1.2], framesPerSecond: 20, everyFrame: true, moving: { angle: 3, spin: 8 },
    actions: [[["turn right", "right"], ["turn left", "left"]]],
  },
  pong: {
    picture: pong, size: [1.12, 1.08], framesPerSecond: 60, everyFrame: true, moving: { player_y: 0.1, opponent_y: 0.1, ball_y: 0.1, frames_to_hit: 2 },
    actions: [STAY_UP_DOWN],
  },
  pong2: {
    picture: pong2, sides: 2, size: [1.12, 1.08], framesPerSecond: 60, everyFrame: true, moving: { paddle_y: 0.1, ball_y: 0.1, frames_to_hit: 2 },
    actions: [STAY_UP_DOWN],
  },
  snake: {
    picture: snake, size: [1, 1], framesPerSecond: 8, score: ({ bodies }) => bodies.eaten[0],
    actions: [[["straight on", "up"], ["turn left", "left"], ["turn right", "right"]]], idle: () => 0,
    steer: ({ bodies }, direction) => [0, 2, 0, 1][(direction - bodies.heading[0] + 4) & 3], // it cannot turn round
  },
};

for (const variant of ["frontier16", "frontier1024", "frontier_tribes"]) GAMES[variant] = GAMES.frontier;

/** Returns how a world looks and is played. */
export function look(world) {
  const known = Object.hasOwn(GAMES, world.name) ? GAMES[world.name] : {};
  return { picture: bars, size: [1.5, 1], framesPerSecond: 20, moving: {}, actions: unnamed(world), ...known };
}

/** What can be said of the actions of any environment: their numbers, of which the digits choose the first nine. */
function unnamed({ actionSizes, continuousActions }) {
  if (continuousActions) return Array.from({ length: continuousActions }, (_, i) => (i === 0 ? [["less", "left"], ["more", "right"]] : i === 1 ? [["less", "down"], ["more", "up"]] : [["less"], ["more"]]));
  return actionSizes.map((size, i) => Array.from({ length: size }, (_, action) => (i || action === 0 || action > 9 ? [`${action}`] : [`${action}`, `${action}`])));
}

/** Draws a state onto a canvas of `width` x `height` pixels, as the player `agent`. */
export function draw(context, game, state, observation, width, height, agent = 0) {
  context.fillStyle = BACKGROUND;
  context.fillRect(0, 0, width, height);
  game.picture(new Court(context, ...game.size, width, height), state, observation, agent);
}

/** Returns what `between` needs of a state, as a copy: the state itself changes with the next step. */
export function kept(game, state) {
  return Object.fromEntries(Object.keys(game.moving).map((field) => [field, typeof state[field] === "number" ? state[field] : Array.from(state[field])]));
}

/** Returns the state at `part`, in [0, 1], of the way from a kept one to the next. What has jumped is already there. */
export function between(game, before, state, part) {
  const found = { ...state };
  for (const [field, limit] of Object.entries(game.moving)) {
    const mixed = (from, to) => (Math.abs(to - from) > limit ? to : from + (to - from) * part);
    found[field] = typeof state[field] === "number" ? mixed(before[field], state[field]) : Array.from(state[field], (to, i) => mixed(before[field][i], to));
  }
  return found;
}
