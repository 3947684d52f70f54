// Numbers and times for people. In: figures as the gateway has them. Out: words.

const PLAIN = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const FINE = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });

export const count = (number) => (number === null || number === undefined ? "–" : PLAIN.format(number));

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

export function bytes(number) {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${PLAIN.format(number)} ${units[unit]}`;
}

/** A time in seconds: "12 s", "5 min", "3 h", "2 days". */
export function span(seconds) {
  if (seconds < 100) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${PLAIN.format(Math.round(seconds / 86400))} days`;
}

/** How long ago by the gateway's clock. us, now: µs since 1970, null where unknown. */
export function ago(us, now) {
  if (us === null || us === undefined) return "never";
  if (now === null) return moment(us);
  const seconds = (now - us) / 1e6;
  return seconds < 1.5 ? "just now" : `${span(seconds)} ago`;
}

export function moment(us) {
  if (us === null || us === undefined) return "at an unknown time";
  return new Date(us / 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

export const clock = (us) =>
  new Date(us / 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

const UNITS = { Cel: "°C", "%RH": "%", "/": "" };

export function valued(reading) {
  if (!reading) return "–";
  const value = typeof reading.value === "number" ? FINE.format(reading.value) : String(reading.value);
  const unit = reading.unit === null ? "" : (UNITS[reading.unit] ?? reading.unit);
  return unit ? `${value} ${unit}` : value;
}
