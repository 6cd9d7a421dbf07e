// A moving picture that can be paused, stepped and started again. A browser shows a GIF itself, but without any of that:
// here its pictures are drawn one by one, where the browser can take it apart (ImageDecoder); else it is shown as it is.

import { fill, h, stateOf } from "./dom.js";
import { sentence } from "./format.js";
import { pause } from "./slow.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4];
const EACH = 600; // milliseconds between two looks whether an episode is there

/** Returns an element in which a trial's agent plays one episode when asked to, or at once where that was made before. */
export function stage(api, trial, signal) {
  const room = h("div", { class: "stage" }, h("button", { type: "button", class: "button", text: "Watch it play one episode", onclick: () => watch(api.post("/trial/play", trial, { signal })) }));
  watch(api.get("/trial/played", trial, { signal }), { first: true });
  return room;

  /** Shows what becomes of an answer. What was never asked for stays a button. */
  async function watch(asked, { first = false } = {}) {
    try {
      for (let answer = await asked; !signal.aborted; answer = await api.get("/trial/played", trial, { signal })) {
        if (answer.state === "ready") return void fill(room, player(api.url("/trial/played", { ...trial, show: 1 }), `one episode of trial ${trial.number}`, signal));
        if (answer.state !== "computing") return void (first || fill(room, h("p", { class: "bad", text: sentence(answer.error || "It was not made.") })));
        if (!room.querySelector(".state")) fill(room, stateOf("loading", "It plays an episode."));
        await pause(EACH, signal);
      }
    } catch (error) {
      if (error.name !== "AbortError" && !first) fill(room, h("p", { class: "bad", text: sentence(error.message) }));
    }
  }
}

/** Returns an element that plays the GIF at an address. */
export function player(src, alt, signal) {
  const room = h("div", { class: "player" }, h("img", { src, alt }));
  if ("ImageDecoder" in window) take(room, src, alt, signal).catch(() => {}); // the picture itself stays
  return room;
}

async function take(room, src, alt, signal) {
  const answer = await fetch(src, { signal });
  const type = answer.headers.get("content-type");
  if (!answer.ok || type !== "image/gif") return;
  const decoder = new ImageDecoder({ data: answer.body, type });
  signal.addEventListener("abort", () => decoder.close(), { once: true });
  await decoder.completed;
  const { frameCount: count } = decoder.tracks.selectedTrack;
  if (count < 2 || signal.aborted) return;
  const first = (await decoder.decode({ frameIndex: 0 })).image;
  const canvas = h("canvas", { width: first.displayWidth, height: first.displayHeight, role: "img", "aria-label": alt });
  first.close();
  const context = canvas.getContext("2d");
  const quiet = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let [at, plays, speed, timer, drawing] = [0, !quiet, 1, 0, false];
  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  const toggle = button("Pause", () => go(!plays));
  const place = h("input", { type: "range", min: "0", max: String(count - 1), value: "0", "aria-label": "Picture", oninput: () => { go(false); show(Number(place.value)); } });
  const shown = h("span", { class: "faint player-place" });
  const pace = h("select", { class: "input", "aria-label": "Speed", onchange: () => { speed = Number(pace.value); } },
    SPEEDS.map((one) => h("option", { value: String(one), text: `${one}x`, selected: one === 1 })));
  fill(room, canvas, h("div", { class: "player-keys", role: "group", "aria-label": "Playback" },
    button("Start again", () => { show(0); go(true); }), button("Back", () => { go(false); show(at - 1); }), toggle, button("Step", () => { go(false); show(at + 1); }), place, shown, pace));
  go(plays);
  await show(0);

  function button(text, onclick) {
    return h("button", { type: "button", class: "button", text, onclick });
  }

  function go(on) {
    plays = on;
    toggle.textContent = on ? "Pause" : "Play";
    clearTimeout(timer);
    if (on) show(at);
  }

  /** Draws a picture, and the next one when its time is over. */
  async function show(wanted) {
    at = (wanted + count) % count;
    if (drawing) return; // the one that is being decoded draws this one after itself
    drawing = true;
    clearTimeout(timer);
    let duration = 0;
    for (let drawn = -1; drawn !== at && !signal.aborted;) {
      drawn = at;
      const { image } = await decoder.decode({ frameIndex: drawn });
      context.drawImage(image, 0, 0);
      duration = (image.duration || 0) / 1000; // microseconds
      image.close();
    }
    drawing = false;
    place.value = String(at);
    shown.textContent = `${at + 1} of ${count}`;
    if (plays && !signal.aborted && room.isConnected) timer = setTimeout(() => show(at + 1), Math.max(10, duration / speed));
  }
}
