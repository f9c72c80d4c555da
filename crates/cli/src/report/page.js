(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const DASHES = ["", "7 3", "2 2.5", "10 3 2 3", "14 4", "10 3 2 3 2 3"];
  const WARM = 3, COOL = 7;

  // ---- numbers for people, as in the table -------------------------------------------------------------------------
  const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  const digits = (v) => trim(Math.abs(v) >= 99.95 ? v.toFixed(0) : Math.abs(v) >= 9.995 ? v.toFixed(1) : v.toFixed(2));
  const bytes = (v) => {
    const units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let unit = 0;
    while (Math.abs(v) >= 999.5 && unit + 1 < units.length) { v /= 1000; unit += 1; }
    return `${digits(v)} ${units[unit]}`;
  };
  const seconds = (v) => {
    const a = Math.abs(v);
    if (a === 0) return "0 s";
    if (a < 0.9995e-3) return `${digits(v * 1e6)} µs`;
    if (a < 0.9995) return `${digits(v * 1e3)} ms`;
    if (a < 119.5) return `${digits(v)} s`;
    if (a < 7170) return `${digits(v / 60)} min`;
    if (a < 172080) return `${digits(v / 3600)} h`;
    return `${digits(v / 86400)} days`;
  };
  const count = (v) => Math.round(v).toLocaleString("en-GB");
  const scientific = (v) => {
    const a = Math.abs(v);
    if (v === 0) return "0";
    if (a >= 0.01 && a < 999.5) return a < 0.0995 ? trim(v.toFixed(3)) : digits(v);
    return v.toExponential(1).replace(".0e", "e").replace("e+", "e");
  };

  // ---- small tools -------------------------------------------------------------------------------------------------
  const make = (name, attributes = {}, ...children) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const html = (name, attributes = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const known = (v) => typeof v === "number" && Number.isFinite(v);

  // ---- the look of each run: CORE in warm colours, the others in cool ones, the dash changes when the colours are used up
  const looks = (() => {
    let warm = 0, cool = 0;
    return data.runs.map((run) => {
      const [i, n, letter] = run.core ? [warm++, WARM, "k"] : [cool++, COOL, "s"];
      return { colour: `var(--${letter}${i % n})`, dash: DASHES[Math.floor(i / n) % DASHES.length] };
    });
  })();
  const swatch = (i, width) => {
    const line = make("line", { x1: 0, y1: 6, x2: width, y2: 6, "stroke-width": data.runs[i].core ? 3.2 : 2 });
    line.style.stroke = looks[i].colour;
    line.style.strokeDasharray = looks[i].dash;
    return make("svg", { viewBox: `0 0 ${width} 12`, width, height: 12, "aria-hidden": "true" }, line);
  };

  // ---- scales and axes ---------------------------------------------------------------------------------------------
  const scale = (log, low, high, from, to) => {
    const f = log ? Math.log10 : (v) => v;
    const a = f(low), b = f(high);
    return (v) => from + ((f(v) - a) / (b - a || 1)) * (to - from);
  };
  /** Values to label and values that get a line only. */
  const ticks = (log, low, high, room) => {
    if (!log) {
      const raw = (high - low) / Math.max(1, room);
      const base = 10 ** Math.floor(Math.log10(raw));
      const step = Math.max(high > 2 ? 1 : 0, base * [1, 2, 5, 10].find((m) => m * base >= raw * 0.999));
      const out = [];
      for (let v = Math.ceil(low / step) * step; v <= high * 1.0001; v += step) out.push(v);
      return out;
    }
    const a = Math.log10(low), b = Math.log10(high), inside = (v) => v >= low * 0.999 && v <= high * 1.001;
    const steps = b - a < 1 ? [1, 2, 3, 5, 7] : b - a < 2 && room > 5 ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil((b - a) / room));
    const out = [];
    for (let e = Math.floor(a); e <= Math.ceil(b); e += 1) {
      if (e % every === 0) for (const m of steps) if (inside(m * 10 ** e)) out.push(Number(`${m}e${e}`));
    }
    return out;
  };
  const power = (x, y, v, anchor) => {
    const e = Math.round(Math.log10(v)), whole = Math.abs(v / 10 ** e - 1) < 1e-9;
    const text = make("text", { x, y, "text-anchor": anchor });
    if (whole && (e < -1 || e > 3)) {
      text.append("10", make("tspan", { dy: -4.5, "font-size": 9 }, String(e).replace("-", "−")));
    } else {
      text.append(scientific(v));
    }
    return text;
  };
  /** The frame, grid and labels of a plot. */
  const axes = (svg, box, x, y, fx, fy, xTick, xName) => {
    const grid = make("g", { class: "grid" }), labels = make("g");
    for (const v of ticks(y.log, y.low, y.high, box.height / 38)) {
      const at = fy(v);
      grid.append(make("line", { x1: box.left, x2: box.right, y1: at, y2: at }));
      labels.append(y.log ? power(box.left - 8, at + 4, v, "end") : make("text", { x: box.left - 8, y: at + 4, "text-anchor": "end" }, trim(v.toFixed(3))));
    }
    for (const v of ticks(x.log, x.low, x.high, box.width / 60)) {
      const at = fx(v);
      grid.append(make("line", { x1: at, x2: at, y1: box.top, y2: box.bottom }));
      labels.append(make("text", { x: at, y: box.bottom + 18, "text-anchor": at > box.right - 16 ? "end" : "middle" }, xTick(v)));
    }
    labels.append(make("text", { x: (box.left + box.right) / 2, y: box.bottom + 36, "text-anchor": "middle" }, xName));
    svg.append(grid, make("path", { class: "frame", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` }), labels);
  };
  const box = (width, height) => {
    const [left, top, right, bottom] = [48, 10, width - 12, height - 44];
    return { left, top, right, bottom, width: right - left, height: bottom - top };
  };
  const line = (points) => points.map((p, i) => `${i ? "L" : "M"}${p.x.toFixed(1)} ${p.y.toFixed(1)}`).join("");
  /** The point of the polylines nearest to a place: by the distance to a line, then the nearer of its ends. */
  const nearest = (lines, x, y, reach) => {
    let found = null, least = reach * reach;
    for (const { run, points } of lines) {
      for (let i = 0; i < points.length; i += 1) {
        const a = points[i], b = points[Math.min(i + 1, points.length - 1)];
        const dx = b.x - a.x, dy = b.y - a.y, square = dx * dx + dy * dy;
        const t = square ? Math.max(0, Math.min(1, ((x - a.x) * dx + (y - a.y) * dy) / square)) : 0;
        const away = (a.x + t * dx - x) ** 2 + (a.y + t * dy - y) ** 2;
        if (away < least) { least = away; found = { run, point: (t < 0.5 ? a : b).index }; }
      }
    }
    return found;
  };
  const tooltip = (tip, title, rows, x, y, width) => {
    const list = html("span");
    for (const [name, value] of rows) list.append(name, html("i", {}, value));
    tip.replaceChildren(html("b", {}, title), list);
    tip.hidden = false;
    const left = x + 16 + tip.offsetWidth > width ? Math.max(0, x - 16 - tip.offsetWidth) : x + 16;
    tip.style.transform = `translate(${left}px, ${Math.max(0, y - tip.offsetHeight - 10)}px)`;
  };

  // ---- the curves --------------------------------------------------------------------------------------------------
  // The start alone is no course.
  const drawable = data.runs.map((run) => run.points.some((p) => known(p[1]) && p[0] > 0));
  const shown = new Set(data.ranking.filter((i) => drawable[i]));
  const all = [...shown];
  const yRange = (() => {
    let low = Infinity, high = 0;
    for (const i of all) for (const [, relative] of data.runs[i].points) {
      if (known(relative) && relative > 1e-17) { low = Math.min(low, relative); high = Math.max(high, relative); }
    }
    if (known(data.target) && data.target > 0) {
      // What goes far beyond the target in one step is drawn at the lower edge: the way there is what is looked at.
      low = Math.min(Math.max(low, data.target * 1e-3), data.target * 0.5);
      high = Math.max(high, data.target * 10);
    }
    // What diverges leaves through the top; it must not press all others flat.
    return { of: (p) => p[1], log: true, low: low * 0.8, high: Math.min(Math.max(high, low * 10), 20) * 1.15 };
  })();
  const scores = (() => {
    const seen = data.runs.flatMap((run) => run.points.map((p) => p[7]).filter(known));
    // What is far worse than most of the way must not press all others flat.
    const high = Math.max(...seen), low = Math.max(Math.min(...seen), high - 1);
    return { of: (p) => p[7], log: false, low: low - 0.02 * (high - low), high: high + 0.02 * (high - low) + 1e-6 };
  })();
  const epoch = data.rounds_per_epoch;
  const passes = known(epoch) ? { of: (p) => p[0] / epoch, tick: digits, name: "epochs" } : { of: (p) => p[0], tick: count, name: "rounds" };
  const X = {
    bytes: { of: (p) => (known(p[6]) ? p[6] : null), tick: bytes, name: "bytes on the wire per machine", log: true },
    rounds: { ...passes, log: false },
    score_rounds: { ...passes, log: false, y: scores },
    score: { of: (p) => (known(p[6]) ? p[6] : null), tick: bytes, name: "bytes on the wire per machine", log: true, y: scores },
    link: { of: (p) => p[5], tick: (v) => (v < 1 ? seconds(v) : `${count(v)} s`), name: "seconds on the link", log: true },
  };
  // A run thirty times longer than the shortest useful one would press it against the axis.
  const lengths = (standing) => data.runs.filter((run, i) => drawable[i] && standing(run.standing)).map((run) => Math.max(1, run.rounds));
  const reached = lengths((s) => s === "reached");
  X.rounds.log = Math.max(...lengths(() => true)) > 30 * Math.min(...(reached.length ? reached : lengths((s) => s !== "failed")));

  const spoken = document.getElementById("spoken");
  const plots = [];
  let focus = null;
  const setFocus = (next) => {
    focus = next;
    for (const plot of plots) plot.focus();
  };

  const curvesPlot = (figure) => {
    const kind = X[figure.dataset.plot], y = kind.y ?? yRange, aims = !kind.y && known(data.target) && data.target > 0;
    const canvas = html("div", { class: "canvas", tabindex: "0", role: "group",
      "aria-label": `${figure.querySelector("h3").textContent}. Left and right follow a curve, up and down change it.` });
    const tip = html("div", { class: "tip", hidden: "" });
    figure.append(canvas);
    let log = kind.log, lines = [], width = 0, overlay = null, svg = null, here = false;

    const control = html("div", { class: "scale", role: "group", "aria-label": "Horizontal axis" });
    for (const [name, value] of [["linear", false], ["log", true]]) {
      const button = html("button", { type: "button", "aria-pressed": String(log === value) }, name);
      button.addEventListener("click", () => {
        log = value;
        for (const other of control.children) other.setAttribute("aria-pressed", String((other.textContent === "log") === log));
        draw();
      });
      control.append(button);
    }
    figure.querySelector("figcaption").append(control);

    const draw = () => {
      width = canvas.clientWidth;
      if (width < 40) return;
      let high = 0, low = Infinity;
      for (const i of all) for (const p of data.runs[i].points) {
        const x = kind.of(p);
        if (known(x) && x > 0 && known(y.of(p))) { high = Math.max(high, x); low = Math.min(low, x); }
      }
      if (!(high > 0)) {
        control.hidden = true;
        canvas.removeAttribute("tabindex");
        canvas.replaceChildren(html("p", { class: "empty" }, "There is nothing to draw: no run recorded a known suboptimality here."));
        return;
      }
      const height = Math.round(figure.classList.contains("hero") ? Math.min(460, Math.max(300, width * 0.56)) : Math.min(340, Math.max(270, width * 0.72)));
      const area = box(width, height);
      const x = { log, low: log ? Math.min(low, high / 10) * 0.9 : 0, high: log ? high * 1.12 : high * 1.02 };
      const fx = scale(log, x.low, x.high, area.left, area.right);
      const fy = scale(y.log, y.low, y.high, area.bottom, area.top);
      svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": figure.querySelector("h3").textContent });
      axes(svg, area, x, y, fx, fy, kind.tick, kind.name);
      const clip = `clip-${figure.dataset.plot}`;
      svg.append(make("defs", {}, make("clipPath", { id: clip }, make("rect", { x: area.left, y: area.top - 2, width: area.width + 6, height: area.height + 2 }))));
      if (aims) {
        const at = fy(data.target);
        svg.append(make("line", { class: "aim", x1: area.left, x2: area.right, y1: at, y2: at }));
      }
      const curves = make("g", { class: "curves", "clip-path": `url(#${clip})` });
      lines = [];
      // The best are drawn last, CORE above all others.
      const order = [...all].reverse().sort((a, b) => data.runs[a].core - data.runs[b].core);
      for (const i of order) {
        const run = data.runs[i], points = [];
        run.points.forEach((p, index) => {
          const at = kind.of(p);
          if (!known(at) || !known(y.of(p)) || (log && at <= 0)) return;
          points.push({ index, x: fx(at), y: Math.min(area.bottom, fy(Math.max(y.of(p), y.low))) });
        });
        const group = make("g", { "data-run": i });
        const path = make("path", { class: `curve${run.core ? " core" : run.baseline ? " baseline" : ""}`, d: line(points) });
        path.style.stroke = looks[i].colour;
        path.style.strokeDasharray = looks[i].dash;
        group.append(path);
        if (points.length && (run.standing === "reached" || points.length === 1)) {
          const last = points[points.length - 1];
          const dot = make("circle", { class: "end", cx: last.x, cy: last.y, r: run.core ? 4.5 : 3.4 });
          dot.style.fill = looks[i].colour;
          group.append(dot);
        }
        curves.append(group);
        lines.push({ run: i, points, group, d: line(points) });
      }
      overlay = make("g", { class: "focus" });
      svg.append(curves, overlay);
      if (aims) {
        svg.append(make("text", { class: "mark", x: area.left + 8, y: fy(data.target) - 6 }, `target ${scientific(data.target)}`));
      }
      svg.classList.toggle("crowd", all.length > 20);
      canvas.replaceChildren(svg, tip);
      show();
      mark();
    };
    const show = () => { for (const { run, group } of lines) group.style.display = shown.has(run) ? "" : "none"; };
    const mark = () => {
      if (!overlay) return;
      overlay.replaceChildren();
      const at = focus && shown.has(focus.run) ? lines.find((l) => l.run === focus.run) : null;
      svg.classList.toggle("focused", Boolean(at));
      tip.hidden = true;
      if (!at) return;
      const path = make("path", { d: at.d, "clip-path": `url(#clip-${figure.dataset.plot})` });
      path.style.stroke = looks[at.run].colour;
      path.style.strokeDasharray = looks[at.run].dash;
      overlay.append(path);
      const spot = at.points.find((p) => p.index === focus.point);
      if (!spot) return;
      const dot = make("circle", { cx: spot.x, cy: spot.y, r: 5 });
      dot.style.fill = looks[at.run].colour;
      overlay.append(dot);
      if (!here) return;
      const p = data.runs[at.run].points[spot.index];
      const rows = [["round", count(p[0])], [known(epoch) ? "share of the loss" : "relative", scientific(p[1])]];
      if (known(p[6])) rows.push(["on the wire", bytes(p[6])], ["payload up, down", `${bytes(p[2])}, ${bytes(p[3])}`]);
      if (data.link && known(p[5])) rows.push(["on the link", seconds(p[5])]);
      if (known(p[7])) rows.push(["held-out score", p[7].toFixed(4)]);
      tooltip(tip, data.runs[at.run].label, rows, spot.x, spot.y, width);
      if (canvas.matches(":focus")) spoken.textContent = `${data.runs[at.run].label}: ${rows.map((r) => r.join(" ")).join(", ")}`;
    };
    const visible = () => lines.filter((l) => shown.has(l.run) && l.points.length);
    const point = (event) => {
      const frame = canvas.getBoundingClientRect();
      here = true;
      setFocus(nearest(visible(), event.clientX - frame.left, event.clientY - frame.top, 44));
    };
    const leave = () => { here = false; setFocus(null); };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("pointerdown", point);
    // A finger that is lifted leaves too, and its owner wants to read.
    canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") leave(); });
    canvas.addEventListener("blur", leave);
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (event.key === "Escape") { leave(); return; }
      if (!by) return;
      event.preventDefault();
      const order = data.ranking.filter((i) => visible().some((l) => l.run === i));
      if (!order.length) return;
      here = true;
      const old = focus ? order.indexOf(focus.run) : -1;
      const run = old < 0 ? order[0] : order[(old + by[0] + order.length) % order.length];
      const { points } = visible().find((l) => l.run === run);
      let at = focus ? points.findIndex((p) => p.index >= focus.point) : points.length - 1;
      if (at < 0) at = points.length - 1;
      at = Math.max(0, Math.min(points.length - 1, at + by[1] * (event.shiftKey ? 10 : 1)));
      setFocus({ run, point: points[at].index });
    });
    plots.push({ draw, show, focus: mark });
    new ResizeObserver(() => { if (canvas.clientWidth !== width) draw(); }).observe(canvas);
    draw();
  };

  // ---- the legend --------------------------------------------------------------------------------------------------
  const entries = new Map();
  const refresh = () => {
    for (const [i, button] of entries) button.setAttribute("aria-pressed", String(shown.has(i)));
    for (const plot of plots) plot.show();
    setFocus(null);
  };
  const choose = (chosen) => {
    shown.clear();
    for (const i of chosen) shown.add(i);
    refresh();
  };
  const alone = (i) => choose(shown.size === 1 && shown.has(i) ? all : [i]);
  const legend = () => {
    const aside = document.querySelector(".legend");
    if (all.length === 0) return;
    aside.hidden = false;
    aside.querySelector("p").hidden = all.length === 1;
    const presets = [
      ["All", all],
      ["Reached", all.filter((i) => data.runs[i].standing === "reached")],
      ["CORE", all.filter((i) => data.runs[i].core)],
      ["Best 8", all.slice(0, 8)],
      ["None", []],
    ];
    for (const [name, chosen] of presets) {
      if (all.length < 3 || (name !== "None" && name !== "All" && (chosen.length === 0 || chosen.length === all.length))) continue;
      const button = html("button", { type: "button" }, name);
      button.addEventListener("click", () => choose(chosen));
      aside.querySelector(".presets").append(button);
    }
    const list = aside.querySelector("ul");
    for (const i of all) {
      const run = data.runs[i];
      const toggle = html("button", { type: "button", class: "toggle", "aria-pressed": "true", "data-run": i, title: run.label },
        swatch(i, 30), html("span", { class: "who" }, run.label), html("span", { class: "cost" }, run.cost || (run.standing === "failed" ? "error" : data.target > 0 ? "never" : "")));
      const only = html("button", { type: "button", class: "only", "aria-label": `Only ${run.label}` }, "only");
      toggle.addEventListener("click", () => { if (!shown.delete(i)) shown.add(i); refresh(); });
      // Its two clicks have undone each other by now.
      toggle.addEventListener("dblclick", () => alone(i));
      only.addEventListener("click", () => alone(i));
      const item = html("li", run.core ? { class: "core" } : {}, toggle, only);
      item.addEventListener("pointerenter", () => { if (shown.has(i)) setFocus({ run: i, point: -1 }); });
      item.addEventListener("pointerleave", () => setFocus(null));
      entries.set(i, toggle);
      list.append(item);
    }
  };

  // ---- the table ---------------------------------------------------------------------------------------------------
  const table = () => {
    const body = document.querySelector("#runs tbody"), heads = [...document.querySelectorAll("#runs thead th")];
    for (const row of body.rows) {
      const i = Number(row.dataset.run);
      row.querySelector(".swatch").append(swatch(i, 30));
      row.addEventListener("pointerenter", () => { if (shown.has(i)) setFocus({ run: i, point: -1 }); });
      row.addEventListener("pointerleave", () => setFocus(null));
    }
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      const rows = [...body.rows];
      rows.sort((a, b) => {
        const [v, w] = [a, b].map((row) => row.cells[column].dataset.v);
        const rank = a.dataset.rank - b.dataset.rank;
        if (column === 0) return sign * v.localeCompare(w, "en", { numeric: true, sensitivity: "base" }) || rank;
        // Rows without a value stay at the end, whichever way.
        if (v === "" || w === "") return (v === "") - (w === "") || rank;
        return sign * (v - w) || rank;
      });
      body.append(...rows);
    }));
  };

  // ---- the spectrum ------------------------------------------------------------------------------------------------
  const spectrum = (figure) => {
    const canvas = html("div", { class: "canvas" }), tip = html("div", { class: "tip", hidden: "" });
    figure.append(canvas);
    const values = data.spectrum.filter(([, v]) => known(v) && v > 0);
    let width = 0;
    const draw = () => {
      width = canvas.clientWidth;
      if (width < 40 || values.length === 0) return;
      const height = Math.round(Math.min(340, Math.max(250, width * 0.4))), area = box(width, height);
      const x = { log: true, low: 0.9, high: Math.max(10, values[values.length - 1][0]) * 1.12 };
      const all = values.map(([, v]) => v), mu = data.strong_convexity;
      let low = Math.min(...all), high = Math.max(...all);
      if (known(mu) && mu > 0) low = Math.min(low, mu);
      // A tail of rounding errors would take most of the height.
      low = Math.max(low, high * 1e-14) / 1.5;
      high *= 1.5;
      const y = { low, high: Math.max(high, low * 12) };
      const fx = scale(true, x.low, x.high, area.left, area.right), fy = scale(true, y.low, y.high, area.bottom, area.top);
      const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Eigenvalues by rank" });
      axes(svg, area, x, y, fx, fy, count, "rank");
      const points = values.map(([rank, v], index) => ({ index, x: fx(rank), y: Math.min(area.bottom, fy(Math.max(v, low))) }));
      const marks = make("g");
      if (known(mu) && mu >= low) {
        marks.append(make("line", { class: "aim", x1: area.left, x2: area.right, y1: fy(mu), y2: fy(mu) }),
          make("text", { class: "mark", x: area.left + 8, y: fy(mu) - 6 }, `μ = ${scientific(mu)}`));
      }
      const deff = data.effective_dimension;
      if (known(deff) && deff >= 1 && deff <= x.high) {
        const right = fx(deff) > area.right - 110;
        marks.append(make("line", { class: "aim", x1: fx(deff), x2: fx(deff), y1: area.top, y2: area.bottom }),
          make("text", { class: "mark", x: fx(deff) + (right ? -7 : 7), y: area.top + 14, "text-anchor": right ? "end" : "start" },
            "d", make("tspan", { dy: 3, "font-size": 9 }, "eff"), make("tspan", { dy: -3 }, ` = ${scientific(deff)}`)));
      }
      const path = make("path", { class: "curve core", d: line(points) });
      path.style.stroke = "var(--s0)";
      const dots = make("g");
      for (const p of points.length <= 60 ? points : points.slice(0, 12)) {
        const dot = make("circle", { cx: p.x, cy: p.y, r: 3 });
        dot.style.fill = "var(--s0)";
        dots.append(dot);
      }
      const overlay = make("g", { class: "focus" });
      svg.append(path, dots, marks, overlay);
      canvas.replaceChildren(svg, tip);
      const point = (event) => {
        const frame = canvas.getBoundingClientRect();
        const found = nearest([{ run: 0, points }], event.clientX - frame.left, event.clientY - frame.top, 60);
        overlay.replaceChildren();
        tip.hidden = !found;
        if (!found) return;
        const spot = points[found.point], dot = make("circle", { cx: spot.x, cy: spot.y, r: 5 });
        dot.style.fill = "var(--s0)";
        overlay.append(dot);
        tooltip(tip, `Rank ${count(values[found.point][0])}`, [["eigenvalue", scientific(values[found.point][1])]], spot.x, spot.y, width);
      };
      canvas.onpointermove = point;
      canvas.onpointerdown = point;
      canvas.onpointerleave = (event) => { if (event.pointerType === "touch") return; overlay.replaceChildren(); tip.hidden = true; };
    };
    new ResizeObserver(() => { if (canvas.clientWidth !== width) draw(); }).observe(canvas);
    draw();
  };

  // ---- the command -------------------------------------------------------------------------------------------------
  const copy = () => {
    const button = document.getElementById("copy"), code = document.getElementById("command");
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1600);
      } catch {
        getSelection().selectAllChildren(code);
      }
    });
  };

  legend();
  for (const figure of document.querySelectorAll("figure[data-plot]")) {
    if (figure.dataset.plot === "spectrum") spectrum(figure); else curvesPlot(figure);
  }
  table();
  copy();
})();
