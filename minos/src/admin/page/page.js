"use strict";
// Asks the server once a second, and draws differences. Everything shown goes through textContent: keys and addresses
// come from clients.

const PERIOD_MS = 1000, POINTS = 300, WINDOW = 10;
const PERCENTILES = [["p50", 0.5], ["p99", 0.99], ["p999", 0.999]];
const NAMES = { p50: "p50", p99: "p99", p999: "p99.9" };
const SIZES = ["small", "large"], STAGES = ["rx", "ring", "service", "tx", "total"];

const at = (id) => document.getElementById(id);
const past = [];          // Answers, oldest first, as many as a window needs.
const points = [];        // What the charts show, oldest first.
let first = null;         // The first answer: sizes are counted from there.

function element(name, attributes = {}, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function duration(ns) {
  if (ns === null) return "–";
  if (ns < 1e6) return (ns / 1e3).toPrecision(3) + " µs";
  return ns < 1e9 ? (ns / 1e6).toPrecision(3) + " ms" : (ns / 1e9).toPrecision(3) + " s";
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit++; }
  return (count >= 100 || unit === 0 ? Math.round(count) : count.toPrecision(3)) + " " + units[unit];
}

function short(count) {
  if (count >= 1e6) return (count / 1e6).toPrecision(3) + " M";
  return count >= 1e4 ? (count / 1e3).toPrecision(3) + " k" : String(Math.round(count));
}

// The steps of a histogram that came between two answers.
function between(now, then) {
  const before = new Map(then || []);
  return (now || []).map(([end, count]) => [end, count - (before.get(end) || 0)]).filter((step) => step[1] > 0);
}

function quantile(steps, share) {
  const total = steps.reduce((sum, step) => sum + step[1], 0);
  let left = total * share;
  for (const [end, count] of steps) {
    left -= count;
    if (left <= 0) return end;
  }
  return null;
}

function table(id, head, rows, keyColumn = -1) {
  const made = [head, ...rows].map((cells, n) => {
    const row = document.createElement("tr");
    cells.forEach((text, column) => {
      const cell = document.createElement(n === 0 ? "th" : "td");
      cell.textContent = text;
      if (n > 0 && column === keyColumn) cell.className = "key-text";
      row.append(cell);
    });
    return row;
  });
  if (rows.length === 0) made.push(document.createElement("tr"));
  at(id).replaceChildren(...made);
}

function canvas(id, height) {
  const svg = at(id), width = Math.max(280, svg.parentElement.clientWidth - 28);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return [svg, width];
}

function drawLatency() {
  const height = 220, left = 52, bottom = 18;
  const [svg, width] = canvas("latency", height);
  const values = points.flatMap((point) => SIZES.flatMap((size) => Object.values(point.latency[size]))).filter(Boolean);
  const low = Math.floor(Math.log10(Math.min(1e3, ...values))), high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(1e4, ...values))));
  const x = (n) => left + ((n + POINTS - points.length) / (POINTS - 1)) * (width - left - 4);
  const y = (ns) => 6 + (1 - (Math.log10(ns) - low) / (high - low)) * (height - bottom - 6);
  const shapes = [];
  for (let power = low; power <= high; power++) {
    shapes.push(element("line", { class: "grid", x1: left, x2: width, y1: y(10 ** power), y2: y(10 ** power) }));
    shapes.push(element("text", { x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, duration(10 ** power)));
  }
  shapes.push(element("text", { x: left, y: height - 3 }, "5 min ago"));
  shapes.push(element("text", { x: width - 2, y: height - 3, "text-anchor": "end" }, "now"));
  for (const size of SIZES) for (const [name] of PERCENTILES) {
    let path = "", pen = "M";
    points.forEach((point, n) => {
      const ns = point.latency[size][name];
      if (ns) { path += `${pen}${x(n).toFixed(1)} ${y(ns).toFixed(1)}`; pen = "L"; } else pen = "M";
    });
    if (path) shapes.push(element("path", { class: `${size} ${name}`, d: path }));
  }
  svg.replaceChildren(...shapes);
}

function drawRoles(workers) {
  const row = 16, [svg, width] = canvas("roles", Math.max(1, workers.length) * row);
  const cell = (width - 24) / POINTS, shapes = [];
  workers.forEach((_, worker) => {
    shapes.push(element("text", { x: 0, y: worker * row + 12 }, worker));
    // Neighbours alike are one shape.
    let run = null;
    const close = () => run && shapes.push(element("rect", {
      class: run.role, x: (24 + run.from * cell).toFixed(1), y: worker * row + 2,
      width: ((run.to - run.from) * cell + 0.3).toFixed(1), height: row - 3, "fill-opacity": run.load,
    }));
    points.forEach((point, n) => {
      const now = point.workers[worker], place = n + POINTS - points.length;
      if (!now) return;
      const load = (0.2 + 0.8 * Math.round(now.load * 5) / 5).toFixed(2);
      if (run && run.role === now.role && run.load === load) { run.to = place + 1; return; }
      close();
      run = { role: now.role, load, from: place, to: place + 1 };
    });
    close();
  });
  svg.replaceChildren(...shapes);
}

function drawSizes(steps, threshold) {
  const height = 150, bottom = 18, [svg, width] = canvas("sizes", height);
  const bars = new Array(31).fill(0);
  for (const [size, count] of steps) bars[Math.min(30, size < 1 ? 0 : Math.ceil(Math.log2(size + 1)))] += count;
  const last = Math.max(8, bars.findLastIndex((count) => count > 0) + 2);
  const most = Math.max(1, ...bars), bar = width / last;
  const tall = (count) => (Math.log10(count + 1) / Math.log10(most + 1)) * (height - bottom - 8);
  const shapes = [element("line", { class: "grid", x1: 0, x2: width, y1: height - bottom, y2: height - bottom })];
  bars.slice(0, last).forEach((count, power) => {
    const size = 2 ** power, side = size / 2 > threshold ? "large" : "small";
    const shape = element("rect", {
      class: side, x: (power * bar + 1).toFixed(1), y: (height - bottom - tall(count)).toFixed(1),
      width: (bar - 2).toFixed(1), height: tall(count).toFixed(1),
    });
    shape.append(element("title", {}, `below ${bytes(size)}: ${short(count)}`));
    shapes.push(shape);
    if (power % Math.ceil(last / 6) === 0) shapes.push(element("text", { x: power * bar, y: height - 4 }, bytes(size)));
  });
  const x = Math.min(width - 1, Math.log2(threshold + 1) * bar);
  shapes.push(element("line", { class: "large", x1: x, x2: x, y1: 0, y2: height - bottom, "stroke-width": 1.5 }));
  shapes.push(element("text", { x: x + (x > width / 2 ? -4 : 4), y: 12, "text-anchor": x > width / 2 ? "end" : "start" }, bytes(threshold)));
  svg.replaceChildren(...shapes);
}

function workersOf(minos) {
  const workers = [];
  for (const [name, value] of Object.entries(minos)) {
    const parts = name.split(":");
    if (parts[0] === "worker" && parts.length === 3) (workers[parts[1]] ||= {})[parts[2]] = value;
  }
  return workers;
}

function take(now) {
  first ||= now;
  past.push(now);
  if (past.length > WINDOW + 1) past.shift();
  const then = past[0], before = past.at(-2) || now, seconds = Math.max(0.001, (now.unix_ms - before.unix_ms) / 1000);
  const rate = (name) => Math.max(0, now.general[name] - before.general[name]) / seconds;
  const latency = {}, stages = {};
  for (const size of SIZES) {
    const steps = (stage) => between(now.latency[size][stage], then.latency[size][stage]);
    const total = steps("total");
    latency[size] = Object.fromEntries(PERCENTILES.map(([name, share]) => [name, quantile(total, share)]));
    stages[size] = STAGES.map((stage) => quantile(steps(stage), 0.99));
  }
  const workers = workersOf(now.minos), earlier = workersOf(before.minos);
  const load = (worker, n) => Math.min(1, (worker.busy_ns - (earlier[n]?.busy_ns ?? worker.busy_ns)) / 1e9 / seconds);
  points.push({ latency, workers: workers.map((worker, n) => ({ role: worker.role, load: load(worker, n) })) });
  if (points.length > POINTS) points.shift();
  show(now, { rate, latency, stages, workers });
}

function show(now, { rate, latency, stages, workers }) {
  const { general, minos } = now, threshold = minos.threshold_bytes;
  at("about").textContent = `${general.version} · ${now.dispatch} · ${workers.length} workers · up ${uptime(general.uptime)}`;
  at("rate").textContent = short(rate("cmd_get") + rate("cmd_set") + rate("cmd_touch"));
  const asked = rate("get_hits") + rate("get_misses");
  at("hits").textContent = asked > 0 ? (100 * rate("get_hits") / asked).toFixed(1) + " %" : "–";
  at("bytes").textContent = `${bytes(rate("bytes_read"))} / ${bytes(rate("bytes_written"))}`;
  at("connections").textContent = general.curr_connections;
  at("memory").textContent = (100 * minos.store_used_bytes / general.limit_maxbytes).toFixed(1) + " %";
  at("threshold").textContent = bytes(threshold);
  table("percentiles", ["", "p50", "p99", "p99.9", ...STAGES.slice(0, 4).map((stage) => `${stage} p99`)],
    SIZES.map((size) => [size, ...PERCENTILES.map(([name]) => duration(latency[size][name])), ...stages[size].slice(0, 4).map(duration)]));
  table("workers", ["worker", "role", "busy", "ring", "handed over", "large done"], workers.map((worker, n) =>
    [n, worker.role, Math.round(100 * points.at(-1).workers[n].load) + " %", worker.ring, short(worker.handed_over), short(worker.large_completed)]));
  table("hot", ["key", "requests/s", "share"], now.hot.map((hot) =>
    [hot.key, short(hot.requests_s), (100 * hot.share).toFixed(1) + " %"]), 0);
  table("large", ["key", "size", "requests", "seen"], now.large.map((large) =>
    [large.key, bytes(large.bytes), short(large.requests), `${large.idle_s} s ago`]), 0);
  table("slow", ["key", "command", "took", "size", "client", "at"], now.slow.slice(0, 12).map((slow) =>
    [slow.key, slow.command, duration(slow.us * 1e3), bytes(slow.bytes), slow.client, new Date(slow.time * 1e3).toLocaleTimeString()]), 0);
  const used = minos.store_used_bytes, limit = general.limit_maxbytes, [bar, width] = canvas("memorybar", 16);
  bar.replaceChildren(element("rect", { class: "ground", width, height: 12, rx: 4 }),
    element("rect", { class: "small", width: width * Math.min(1, used / limit), height: 12, rx: 4 }));
  table("memorytable", ["", ""], [["used", bytes(used)], ["limit", bytes(limit)], ["items", short(general.curr_items)],
    ["index", bytes(minos.store_index_bytes)], ["evictions/s", short(rate("evictions"))], ["expired/s", short(rate("reclaimed"))]]);
  for (const [id, group] of [["flash", now.flash], ["rack", now.rack]]) {
    at(id + "section").hidden = !group;
    if (group) table(id, ["", ""], Object.entries(group).map(([name, value]) => [name, /bytes|rate/.test(name) ? bytes(value) : value]));
  }
  drawLatency();
  drawRoles(workers);
  drawSizes(between(now.sizes, first.sizes), threshold);
  showChoices(now);
}

function uptime(seconds) {
  const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24, minutes = Math.floor(seconds / 60) % 60;
  if (days) return `${days} d ${hours} h`;
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min` : `${seconds} s`;
}

function showChoices(now) {
  const designs = at("designs");
  if (designs.childElementCount === 0) {
    designs.append(...now.designs.map((name) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.addEventListener("click", () => change("/dispatch", { dispatch: name }));
      return button;
    }));
    at("slowfrom").value = now.slow_us;
  }
  for (const button of designs.children) button.setAttribute("aria-pressed", button.textContent === now.dispatch);
}

async function change(path, wish) {
  const token = at("token").value, headers = { "content-type": "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  try {
    const answer = await fetch(path, { method: "PUT", headers, body: JSON.stringify(wish) });
    at("answer").textContent = answer.ok ? "done" : (await answer.json()).error;
  } catch (error) {
    at("answer").textContent = String(error);
  }
}

async function ask() {
  try {
    const token = at("token").value;
    const answer = await fetch("/now", { cache: "no-store", headers: token ? { authorization: `Bearer ${token}` } : {} });
    if (!answer.ok) throw new Error((await answer.json()).error);
    take(await answer.json());
    at("trouble").hidden = true;
  } catch (error) {
    at("trouble").textContent = `No answer: ${error.message}`;
    at("trouble").hidden = false;
  }
  setTimeout(ask, PERIOD_MS);
}

at("change").addEventListener("submit", (event) => {
  event.preventDefault();
  change("/slow", { threshold_us: Number(at("slowfrom").value) });
});
ask();
