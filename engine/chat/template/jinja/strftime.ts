const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];

/**
 * Formats a date like Python's `strftime`, in local time and English. Rare fields are not supported and stay
 * unchanged. "-" behind the percent sign removes leading zeros.
 */
export function strftime(date: Date, format: string): string {
  const two = (number: number) => String(number).padStart(2, "0");
  const fields: Record<string, () => string> = {
    Y: () => String(date.getFullYear()),
    y: () => two(date.getFullYear() % 100),
    m: () => two(date.getMonth() + 1),
    d: () => two(date.getDate()),
    B: () => MONTHS[date.getMonth()],
    b: () => MONTHS[date.getMonth()].slice(0, 3),
    A: () => DAYS[date.getDay()],
    a: () => DAYS[date.getDay()].slice(0, 3),
    H: () => two(date.getHours()),
    I: () => two(date.getHours() % 12 || 12),
    M: () => two(date.getMinutes()),
    S: () => two(date.getSeconds()),
    p: () => date.getHours() < 12 ? "AM" : "PM",
    j: () =>
      String(Math.round((+date - +new Date(date.getFullYear(), 0, 1)) / 86_400_000 + 0.5)).padStart(3, "0"),
    e: () => String(date.getDate()).padStart(2),
    w: () => String(date.getDay()),
    F: () => strftime(date, "%Y-%m-%d"),
    T: () => strftime(date, "%H:%M:%S"),
    D: () => strftime(date, "%m/%d/%y"),
    "%": () => "%",
  };
  const filled = (field: string, flag: string) => {
    const text = fields[field]?.();
    return text === undefined ? undefined : flag === "-" ? text.replace(/^0+(?=\d)/, "") : text;
  };
  return format.replaceAll(/%(-?)([A-Za-z%])/g, (whole, flag, field) => filled(field, flag) ?? whole);
}
