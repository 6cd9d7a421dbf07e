// A box that is dragged over a chart: to select what is inside, or to enlarge it.

import { h } from "./dom.js";

const LEAST = 4; // pixels: less is a click

/**
 * Lets a box be dragged over an ECharts chart while `active()`. `done([x0, x1], [y0, y1])` gets it in the chart's values.
 * Escape ends it without a result.
 */
export function dragBox({ instance, room, active, done, signal }) {
  const box = h("div", { class: "drag-box", hidden: true });
  room.append(box);
  let begin = null;
  const at = (event) => {
    const around = room.getBoundingClientRect();
    return [event.clientX - around.left, event.clientY - around.top];
  };
  const draw = (a, b) => {
    Object.assign(box.style, { left: `${Math.min(a[0], b[0])}px`, top: `${Math.min(a[1], b[1])}px`,
      width: `${Math.abs(a[0] - b[0])}px`, height: `${Math.abs(a[1] - b[1])}px` });
    box.hidden = false;
  };
  const end = () => { begin = null; box.hidden = true; };
  room.addEventListener("pointerdown", (event) => {
    if (!active() || event.button !== 0 || !instance.containPixel({ gridIndex: 0 }, at(event))) return;
    event.preventDefault();
    begin = at(event);
    room.setPointerCapture(event.pointerId);
  }, { signal });
  room.addEventListener("pointermove", (event) => { if (begin) draw(begin, at(event)); }, { signal });
  room.addEventListener("pointerup", (event) => {
    if (!begin) return;
    const [a, b] = [begin, at(event)];
    end();
    if (Math.abs(a[0] - b[0]) < LEAST || Math.abs(a[1] - b[1]) < LEAST) return;
    const [p, q] = [a, b].map((one) => instance.convertFromPixel({ gridIndex: 0 }, one));
    const rising = (x, y) => (x < y ? [x, y] : [y, x]);
    done(rising(p[0], q[0]), rising(p[1], q[1]));
  }, { signal });
  room.addEventListener("pointercancel", end, { signal });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && begin) end(); }, { signal });
}
