// Numbers, durations and times as short text: the same rules as in the terminal (protein/view/text.py).
// NaN and infinities come from the server as the texts "nan", "inf" and "-inf"; `number` reads them.

export const MISSING = "–";
const LONG_SECONDS = 86_400e4; // days from here on would be long numbers
const MINUS = "−";

/** Returns a number from the server's JSON; null where there is none. */
export function number(value) {
  if (value === null || value === undefined) return null;
  if (typeof value === "number") return value;
  if (value === "nan") return NaN;
  if (value === "inf") return Infinity;
  if (value === "-inf") return -Infinity;
  return null;
}

/** Returns the numbers of a list as the server sends it; a missing one as null. */
export function numbers(values) {
  return values.map(number);
}

/** A score: two decimals; three below 10 in size, more where it is very small, none where it is large. */
export function score(value) {
  return difference(value, value);
}

/** A difference, with the decimals of the score that it is of. */
export function difference(value, of) {
  const x = number(value);
  if (x === null) return MISSING;
  const special = unusual(x);
  if (special) return special;
  if (x !== 0 && Math.abs(x) < 0.1) return signed(significant(x, 3));
  if (Math.abs(number(of)) < 10) return signed(x.toFixed(3));
  return signed(Math.abs(x) < 10000 ? x.toFixed(2) : significant(x, 6));
}

/** A duration in two units at most: 0.0014s, 0.42s, 12.3s, 4m05s, 2h03m, 1d04h. */
export function seconds(value) {
  const x = number(value);
  if (x === null) return MISSING;
  const special = unusual(x);
  if (special) return special;
  if (x < 0) return MINUS + seconds(-x);
  if (x > 0 && x < 0.0995) return x >= 1e-6 ? `${trimmed(x.toPrecision(2))}s` : `${x.toExponential(1)}s`;
  if (x < 59.95) return `${x < 9.995 ? x.toFixed(2) : x.toFixed(1)}s`;
  const whole = Math.round(x);
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  const minutes = Math.round(x / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)}h${two(minutes % 60)}m`;
  if (x >= LONG_SECONDS) return `${x.toExponential(2).replace(/\.?0+e/, "e").replace(/e\+(\d)$/, "e+0$1")}s`;
  const hours = Math.round(x / 3600);
  return `${Math.floor(hours / 24)}d${two(hours % 24)}h`;
}

/** A duration at a tick of an axis: without needless digits. */
export function clock(value) {
  return value === 0 ? "0" : seconds(value).replace(/(\.\d*?)0+s$/, "$1s").replace(/\.s$/, "s").replace(/(m|h|d)00[smh]$/, "$1");
}

/** A number of steps: 950, 12.3k, 5M. */
export function count(value) {
  const x = number(value);
  if (x === null) return MISSING;
  const special = unusual(x);
  if (special) return special;
  let rest = x;
  for (const unit of ["", "k", "M", "G"]) {
    if (Math.abs(rest) < 999.5 || unit === "G") return `${trimmed(rest.toPrecision(3))}${unit}`;
    rest /= 1000;
  }
  return String(x);
}

/** A whole number with thin spaces between thousands. */
export function whole(value) {
  const x = number(value);
  return x === null ? MISSING : signed(String(Math.round(x)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009"));
}

/** A number of things: "1 trial", "12 trials". */
export function counted(amount, thing) {
  return `${whole(amount)} ${thing}${amount === 1 ? "" : "s"}`;
}

/**
 * A parameter's value: numbers to six digits, which is all that the space resolves, or to fewer. One that is not active
 * has none, and no text. (That a value is None is the text "null" here, see protein/columns.py.)
 */
export function param(value, digits = 6) {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "true" : "false";
  const x = typeof value === "string" ? null : number(value);
  if (x === null) return String(value);
  const special = unusual(x);
  if (special) return special;
  return Number.isInteger(x) && Math.abs(x) < 1e15 ? whole(x) : signed(significant(x, digits));
}

/** A size, as in 3.2 MiB; "" where it is not known. */
export function bytes(size) {
  if (size === null || size === undefined) return "";
  let rest = size;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (rest < 1024 || unit === "GiB") return `${Number(rest.toPrecision(3))} ${unit}`;
    rest /= 1024;
  }
  return "";
}

/** A probability as a percentage, which is never rounded to 0 or 100; as in protein/units.py. */
export function probability(value) {
  return value > 0.99 ? "over 99 %" : value < 0.01 ? "under 1 %" : percent(value);
}

/** A share as a percentage: 71 %. */
export function percent(value, digits = 0) {
  const x = number(value);
  return x === null ? MISSING : unusual(x) || `${signed((100 * x).toFixed(digits))}\u2009%`;
}

/** A moment (seconds since 1970) in the reader's time zone: 2026-03-04 18:00:05. */
export function time(value) {
  const x = number(value);
  if (x === null || !Number.isFinite(x)) return MISSING;
  const at = new Date(x * 1000);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `
    + `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** How long ago a moment was, as "3m05s ago". */
export function ago(value) {
  const x = number(value);
  return x === null ? MISSING : `${seconds(Math.max(0, Math.round(Date.now() / 1000 - x)))} ago`;
}

/** An estimate {value, low, high} with its interval: 18.20 (16.00 to 19.50). */
export function estimate(one, format = score) {
  if (!one || one.value === null || one.value === undefined) return MISSING;
  return `${format(one.value)} (${format(one.low)} to ${format(one.high)})`;
}

/** A tick of an axis: short, without needless digits. */
export function tick(value) {
  const x = Math.abs(value);
  if (x === 0) return "0";
  if (x >= 1e6 || x < 1e-4) {
    const power = Math.floor(Math.log10(x) + 1e-9);
    const front = trimmed((value / 10 ** power).toPrecision(3));
    return `${front === "1" ? "" : `${signed(front)}·`}10${superscript(power)}`;
  }
  return x >= 10000 ? count(value) : signed(trimmed(value.toPrecision(4)));
}

/** A tick of an axis of powers of two: 512, 16384, 2²⁰. */
export function power(value) {
  const x = value < 1 ? value : Math.round(value);
  return x < 1 ? tick(x) : x < 2 ** 20 ? String(x) : `2${superscript(Math.round(Math.log2(x)))}`;
}

/** A column's head: `cost_seconds` is "cost" (see HEADS in protein/columns.py). */
export function title(column) {
  return column.title;
}

/** The text of a cell: by what the column holds. */
export function cell(column, value) {
  if (value === null || value === undefined) return column.group === "params" ? "" : MISSING;
  if (column.kind === "time") return time(value);
  if (column.kind === "boolean") return value ? "yes" : "no";
  if (column.kind === "tags") return value.join(", ");
  if (column.group === "timings" || (column.group === "trial" && column.key.endsWith("_seconds"))
    || /_seconds(_low|_high)?$/.test(column.group === "trial" ? column.key : "")) return seconds(value);
  if (column.group === "params") return param(value);
  if (column.group === "metrics" && Number.isInteger(value) && Math.abs(value) >= 100) return whole(value); // a count, mostly
  if (column.key === "number" || column.key === "continues") return String(value);
  if (column.key === "steps") return count(value);
  if (column.group === "metrics" || column.kind === "number" || column.kind === "integer") return score(value);
  return String(value);
}

/** Whether a column's cells stand to the right: numbers do. */
export function toTheRight(column) {
  return ["number", "integer", "time"].includes(column.kind);
}

function unusual(x) {
  if (Number.isNaN(x)) return "NaN";
  return x === Infinity ? "∞" : x === -Infinity ? `${MINUS}∞` : "";
}
function significant(x, digits) {
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-4 || size >= 10 ** digits)) {
    const [front, power] = x.toExponential(digits - 1).split("e");
    return `${trimmed(front)}e${Number(power)}`;
  }
  return trimmed(x.toPrecision(digits));
}
function trimmed(text) {
  return text.includes("e") ? String(Number(text)) : text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}
function signed(text) {
  return text.replace(/^-/, MINUS);
}
function two(value) {
  return String(value).padStart(2, "0");
}
function superscript(power) {
  return String(power).replace(/./g, (sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign] || (sign === "-" ? "⁻" : sign));
}

/** A line as a sentence: with a capital letter and a stop. */
export function sentence(line) {
  return line ? line.charAt(0).toUpperCase() + line.slice(1) + (/[.!?]$/.test(line) ? "" : ".") : "";
}
