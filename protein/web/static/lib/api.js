// Where pages get their data. All of it comes through an object with `get`, `post` and `watch`, so that a report can
// replace the server by data that it carries along.

export class ApiError extends Error {
  /** `status`: of the answer; 0: the server does not answer. */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** The address of a question; the report keeps its answers by it. Values that are "" or null are left out. */
export function address(path, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== "" && one !== null && one !== undefined && one !== false) query.append(key, String(one));
    }
  }
  const text = query.toString();
  return path + (text ? `?${text}` : "");
}

export class ServerApi {
  live = true; // there is news, and writing is possible

  constructor(base = "/api") {
    this.base = base;
  }

  /** Returns the answer. Throws an `ApiError` with one clear line, or the signal's AbortError. */
  async get(path, params = {}, { signal } = {}) {
    return this.#answer(await this.#fetch(this.url(path, params), { signal }));
  }

  async post(path, body, { signal } = {}) {
    const headers = { "Content-Type": "application/json" };
    return this.#answer(await this.#fetch(this.base + path, { method: "POST", headers, body: JSON.stringify(body), signal }));
  }

  /** The address of an answer, for links and downloads. */
  url(path, params = {}) {
    const zone = params.filter ? { zone: Intl.DateTimeFormat().resolvedOptions().timeZone } : {}; // of the times in it
    return this.base + address(path, { ...params, ...zone });
  }

  /**
   * Calls back with news of these sweeps until the returned function is called.
   * `changed(sweeps)`, `sweeps()`, `trouble(line)`, `gone()`: the server does not answer, `back(epoch)`: it does.
   */
  watch(names, callbacks) {
    let source = null;
    let timer = 0;
    let closed = false;
    const connect = () => {
      source = new EventSource(this.url("/changes", { sweep: names }));
      source.addEventListener("hello", (event) => callbacks.back?.(JSON.parse(event.data).epoch));
      source.addEventListener("changed", (event) => callbacks.changed?.(JSON.parse(event.data).sweeps));
      source.addEventListener("sweeps", () => callbacks.sweeps?.());
      source.addEventListener("trouble", (event) => callbacks.trouble?.(JSON.parse(event.data).error));
      source.addEventListener("error", () => {
        source.close();
        if (closed) return;
        callbacks.gone?.();
        timer = setTimeout(connect, 1000);
      });
    };
    connect();
    return () => {
      closed = true;
      clearTimeout(timer);
      source.close();
    };
  }

  async #fetch(url, options) {
    try {
      return await fetch(url, { credentials: "same-origin", ...options });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("the server does not answer; start protein view again", 0);
    }
  }

  async #answer(response) {
    let value = null;
    try { value = await response.json(); } catch (error) { if (error.name === "AbortError") throw error; }
    if (response.ok && value !== null) return value;
    throw new ApiError(value?.error || `the server answered with status ${response.status}`, response.status);
  }
}

/** Answers that a report carries along: address -> answer. */
export class EmbeddedApi {
  live = false;

  constructor(answers) {
    this.answers = answers;
  }

  async get(path, params = {}) {
    const key = address(path, params);
    if (key in this.answers) return this.answers[key];
    throw new ApiError("this report does not hold that; look at the sweep with protein view", 404);
  }

  async post() {
    throw new ApiError("a report cannot be changed; use protein view", 403);
  }

  url() {
    return "";
  }

  watch() {
    return () => {};
  }
}
