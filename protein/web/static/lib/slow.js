// Answers that take the server seconds: {state: "ready" | "computing" | "failed", value, error}. A page shows what there
// is and asks again until it is ready.

const FIRST = 700; // milliseconds between two questions; each wait is longer, up to the last
const LAST = 5000;
const FOLLOW = 5000; // milliseconds between two looks at what the store tells no news of
const AGAIN = 300; // milliseconds, where each question waits at the server

/** Asks until the answer is ready or has failed; `show(answer)` is called with each one. Stops with the signal. */
export async function whenReady(api, path, params, signal, show) {
  for (let wait = FIRST; !signal.aborted; wait = Math.min(LAST, wait * 1.5)) {
    const answer = await api.get(path, params, { signal });
    if (signal.aborted) return;
    show(answer);
    if (answer.state !== "computing") return;
    await pause(wait, signal);
  }
}

/** Returns the first answer that does not say that it is still being computed. Throws what `api.get` throws. */
export async function patient(api, path, params, signal) {
  for (;;) {
    const answer = await api.get(path, params, { signal }); // the server waits for it, too, for some seconds
    if (answer.state !== "computing") return answer;
    await pause(AGAIN, signal);
    if (signal?.aborted) throw new DOMException("the page was left", "AbortError");
  }
}

/** Asks as `whenReady`, but only once at a time for each name: whoever wishes it meanwhile makes it ask again at its end. */
export class Asking {
  #open = new Map(); // name -> whether to ask again

  async whenReady(name, api, path, params, signal, show) {
    if (this.#open.has(name)) {
      this.#open.set(name, true);
      return;
    }
    try {
      do {
        this.#open.set(name, false);
        await whenReady(api, path, params, signal, show);
      } while (this.#open.get(name) && !signal.aborted);
    } finally {
      this.#open.delete(name);
    }
  }
}

/**
 * Returns a function that begins to do some work again and again while the page is seen, and until `goes()` is false, what
 * was asked for is gone, or the signal is aborted. To call it twice begins nothing twice.
 */
export function follower(goes, work, signal) {
  let timer = 0;
  const end = () => { clearInterval(timer); timer = 0; };
  signal.addEventListener("abort", end);
  return () => {
    if (timer || signal.aborted || !goes()) return;
    timer = setInterval(async () => {
      if (document.hidden) return;
      try {
        await work();
        if (!goes()) end();
      } catch (error) {
        if (error.status === 404) end();
        else if (error.name !== "AbortError" && error.status === undefined) throw error;
      }
    }, FOLLOW);
  };
}

/** Waits, or less where the signal is aborted. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
