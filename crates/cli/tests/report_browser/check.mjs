// Opens HTML reports in a real browser and checks what a person would do with them.
//
//   COREWIRE_REPORT_SAMPLES=/tmp/reports cargo test -p corewire-cli samples_are_written
//   npm install --no-save --prefix /tmp/browser playwright-core
//   NODE_PATH=/tmp/browser/node_modules node crates/cli/tests/report_browser/check.mjs /tmp/reports/*.html
//
// CHROMIUM names the browser's program, /usr/bin/chromium where it is not set. The report of a real comparison can be given as well.
// Ends with 0 if every check of every page held, with 1 otherwise.
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

// `require` looks where NODE_PATH says; `import` does not.
const { chromium } = createRequire(import.meta.url)("playwright-core");

const files = process.argv.slice(2);
if (files.length === 0) {
  console.error("usage: node check.mjs REPORT.html...");
  process.exit(2);
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
let failures = 0;

for (const file of files) {
  for (const [width, colorScheme] of [[1280, "light"], [390, "dark"]]) {
    const context = await browser.newContext({ viewport: { width, height: 860 }, colorScheme, reducedMotion: "reduce" });
    const page = await context.newPage();
    page.setDefaultTimeout(5000);
    const complaints = [], requests = [];
    page.on("console", (message) => { if (["error", "warning"].includes(message.type())) complaints.push(message.text()); });
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("request", (request) => { if (!/^(file|data):/.test(request.url())) requests.push(request.url()); });
    page.on("dialog", (dialog) => { complaints.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
    await page.goto(pathToFileURL(resolve(file)).href);

    const checks = [];
    const check = (name, holds, found = "") => checks.push([name, holds, found]);
    try {
      await inspect(page, check, width);
    } catch (error) {
      check("the page could be used to the end", false, String(error.message).split("\n")[0]);
    }
    check("nothing was written to the console as an error", complaints.length === 0, complaints.join(" | "));
    check("nothing was asked of the network", requests.length === 0, requests.join(" "));

    const broken = checks.filter(([, holds]) => !holds);
    failures += broken.length;
    console.log(`${broken.length ? "FAILED" : "ok"}  ${file} at ${width} px, ${colorScheme}: ${checks.length - broken.length} of ${checks.length}`);
    for (const [name, , found] of broken) console.log(`        not so: ${name}${found === "" ? "" : ` (${found})`}`);
    await context.close();
  }
}
await browser.close();
process.exit(failures ? 1 : 0);

async function inspect(page, check, width) {
  const data = await page.evaluate(() => JSON.parse(document.getElementById("data").textContent));
  const drawable = data.runs.map((run, i) => ({ run, i })).filter(({ run }) => run.points.some((p) => p[1] !== null && p[0] > 0));

  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  check("the page does not scroll sideways", wide <= width, `${wide} px`);
  check("every run has a row", (await page.locator("#runs tbody tr").count()) === data.runs.length);
  check("no injected element", (await page.locator("img").count()) === 0);
  const text = await page.evaluate(() => document.body.innerText);
  check("no NaN, undefined or null is shown", !/\bNaN\b|\bundefined\b|\bnull\b|\bInfinity\b/.test(text));

  const plots = page.locator("figure[data-plot]:not([data-plot=spectrum])");
  const scored = data.runs.some((run) => run.points.some((p) => p[7] !== null));
  check("rounds and bytes have a plot, seconds if there is a link, scores if there are such", (await plots.count()) === 2 + Boolean(data.link) + scored);
  const spectrum = page.locator("[data-plot=spectrum] svg path.curve");
  if (data.spectrum.some(([, value]) => value > 0)) check("the spectrum is drawn", /^M[\d. ]+L/.test((await spectrum.getAttribute("d")) ?? ""));

  const strange = await page.evaluate(() => [...document.querySelectorAll("svg *")].flatMap((element) =>
    [...element.attributes].map((a) => `${element.tagName} ${a.name}=${a.value}`)).filter((a) => /NaN|undefined|Infinity/.test(a)));
  check("no coordinate is NaN", strange.length === 0, strange.slice(0, 3).join("; "));

  if (drawable.length === 0) return;
  for (let k = 0; k < (await plots.count()); k += 1) {
    const name = await plots.nth(k).getAttribute("data-plot");
    const drawn = await plots.nth(k).locator("path.curve").evaluateAll((paths) => paths.filter((p) => p.getAttribute("d").includes("L")).length);
    const expected = drawable.filter(({ run }) => run.points.filter((p) => p[1] !== null && p[0] > 0).length > 1).length;
    check(`the plot against ${name} has its curves`, drawn >= expected && (await plots.nth(k).locator("path.curve").count()) === drawable.length, `${drawn} of ${expected}`);
  }

  await legend(page, check, plots, drawable);
  await hover(page, check, data);
  await axis(page, check);
  await sorting(page, check, data);
}

async function legend(page, check, plots, drawable) {
  const shown = (i) => plots.locator(`.curves [data-run="${i}"]`).evaluateAll((groups) => groups.filter((g) => getComputedStyle(g).display !== "none").length);
  const all = await plots.count();
  const toggles = page.locator(".legend .toggle");
  check("the legend has an entry for every curve", (await toggles.count()) === drawable.length);
  const first = toggles.first(), run = await first.getAttribute("data-run");
  check("a curve is shown in all plots at first", (await shown(run)) === all && (await first.getAttribute("aria-pressed")) === "true");
  await first.click();
  check("its legend entry hides it in all plots", (await shown(run)) === 0 && (await first.getAttribute("aria-pressed")) === "false");
  await first.focus();
  await page.keyboard.press("Space");
  check("the keyboard brings it back", (await shown(run)) === all && (await first.getAttribute("aria-pressed")) === "true");
  if (drawable.length < 2) return;

  const visible = async () => {
    const counts = await Promise.all(drawable.map(({ i }) => shown(i)));
    return counts.filter((n) => n === all).length;
  };
  await first.dblclick();
  check("a double click leaves one alone", (await visible()) === 1 && (await shown(run)) === all);
  await first.dblclick();
  check("a second one brings all back", (await visible()) === drawable.length);
  await page.locator(".legend .only").last().focus();
  await page.keyboard.press("Enter");
  check("`only` leaves one alone", (await visible()) === 1 && (await shown(run)) === 0);
  if (drawable.length >= 3) {
    await page.getByRole("button", { name: "All", exact: true }).click();
    check("`All` brings all back", (await visible()) === drawable.length);
  } else {
    await page.keyboard.press("Enter");
  }
}

async function hover(page, check, data) {
  const canvas = page.locator("[data-plot=bytes] .canvas");
  await canvas.scrollIntoViewIfNeeded();
  const best = data.ranking.find((i) => data.runs[i].points.filter((p) => p[1] !== null && p[2] + p[3] > 0).length > 2);
  if (best === undefined) return;
  // The middle vertex of the best curve, in the page's coordinates.
  const spot = await canvas.evaluate((element, run) => {
    const points = [...element.querySelector(`[data-run="${run}"] path`).getAttribute("d").matchAll(/[ML]([\d.]+) ([\d.]+)/g)];
    const [, x, y] = points[Math.floor(points.length / 2)], frame = element.getBoundingClientRect();
    return { x: frame.left + Number(x), y: frame.top + Number(y) };
  }, best);
  await page.mouse.move(spot.x, spot.y);
  const tip = page.locator("[data-plot=bytes] .tip");
  const words = (await tip.isVisible()) ? await tip.innerText() : "";
  const named = data.runs.some((run) => words.startsWith(run.label.trim().slice(0, 12)));
  check("pointing at a curve reads out method, round, relative and bytes", named && /round[\s\S]*relative[\s\S]*on the wire\s+[\d.,]+ k?M?B/.test(words), words);
  await page.mouse.move(2, 2);
  check("pointing elsewhere ends it", !(await tip.isVisible()));
  await canvas.focus();
  await page.keyboard.press("ArrowRight");
  check("the keyboard reads a curve out too", (await tip.isVisible()) && (await page.locator("#spoken").textContent()).includes("round"));
  await page.keyboard.press("Escape");
}

async function axis(page, check) {
  const curve = page.locator("[data-plot=rounds] path.curve").last();
  const before = await curve.getAttribute("d");
  await page.locator("[data-plot=rounds] .scale button[aria-pressed=false]").click();
  check("the axis of rounds changes between linear and logarithmic", before !== (await curve.getAttribute("d")) || before.length < 12);
}

async function sorting(page, check, data) {
  const column = (key) => page.locator(`#runs tbody td[data-key="${key}"]`).evaluateAll((cells) => cells.map((cell) => cell.dataset.v));
  const ordered = (values, sign) => {
    const numbers = values.filter((v) => v !== "").map(Number);
    const blanksLast = values.slice(numbers.length).every((v) => v === "");
    return blanksLast && numbers.every((v, i) => i === 0 || sign * (v - numbers[i - 1]) >= 0);
  };
  if (data.target > 0) check("rows come by their cost to the target, the others at the end", ordered(await column(data.link ? "link" : "total"), 1));
  const head = page.locator("#runs th[data-key=rounds]");
  await head.getByRole("button").click();
  check("a heading sorts upwards", ordered(await column("rounds"), 1) && (await head.getAttribute("aria-sort")) === "ascending");
  await head.getByRole("button").click();
  check("and downwards", ordered(await column("rounds"), -1) && (await head.getAttribute("aria-sort")) === "descending");
  await page.locator("#runs th[data-key=method]").getByRole("button").click();
  const names = await page.locator("#runs tbody th").evaluateAll((cells) => cells.map((cell) => cell.dataset.v));
  const sorted = [...names].sort((a, b) => a.localeCompare(b, "en", { numeric: true, sensitivity: "base" }));
  check("names sort as names", names.join("\n") === sorted.join("\n"));
}
