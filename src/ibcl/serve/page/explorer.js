"use strict";
// The explorer, wherever its answers come from: choose a preference, see how good its model is on
// every task, compare it with another one, and see what one task costs the other.
//
// A source answers:
//   overview()                   tasks, classes, version, versions, validation (rows by task)
//   measure(preference, version) scores by task, and their weighted average
//   front(x, y, version)         scores between two tasks, and of every task alone
//   remark(milliseconds)         what is said beside the average
// and may have `also`, called with the preference after every change, and `nothing`, what to do where
// there are no rows to measure on.

const byId = (name) => document.getElementById(name);
const percent = Charts.percent;
// In tables, where numbers stand below each other.
const aligned = (value) => `${(100 * value).toFixed(1)}%`;

function say(text, fault = false) {
  const place = byId("news");
  place.hidden = !text;
  place.classList.toggle("fault", fault);
  place.textContent = text;
}

// What went wrong is over once something succeeds.
function sayNoFault() {
  if (byId("news").classList.contains("fault")) say("");
}

let working = 0;

function busier(by) {
  working += by;
  document.querySelector("main").setAttribute("aria-busy", String(working > 0));
}

// Only the latest wish counts: while one request is under way, the ones in between are dropped.
function latest(work) {
  let busy = false, again = false;
  return async function run() {
    if (busy) { again = true; return; }
    busy = true;
    busier(1);
    try {
      do { again = false; await work(); } while (again);
      sayNoFault();
    } catch (error) {
      say(error.message, true);
    } finally {
      busy = false;
      busier(-1);
    }
  };
}

// Rounded so that they can be read and typed; the largest takes what rounding leaves over.
function rounded(preference) {
  const entries = Object.entries(preference).map(([task, weight]) => [task, Math.round(weight * 1e6) / 1e6]);
  const total = entries.reduce((sum, [, weight]) => sum + weight, 0);
  const largest = entries.reduce((best, entry) => (entry[1] > best[1] ? entry : best), entries[0]);
  largest[1] = Math.max(0, Math.round((largest[1] + 1 - total) * 1e6) / 1e6);
  return Object.fromEntries(entries);
}

// A task that another version does not know gives its weight to the others.
function forVersion(preference, tasks) {
  const known = Object.fromEntries(Object.entries(preference).filter(([task]) => tasks.includes(task)));
  const total = Object.values(known).reduce((sum, weight) => sum + weight, 0);
  if (total <= 0) return rounded(Object.fromEntries(tasks.map((task) => [task, 1 / tasks.length])));
  return rounded(Object.fromEntries(Object.entries(known).map(([task, weight]) => [task, weight / total])));
}

function shortened(name) {
  return name.length > 24 ? `${name.slice(0, 23)}…` : name;
}

function cell(row, text, kind = "td", classes = "") {
  const made = document.createElement(kind);
  made.textContent = text;
  made.className = classes;
  row.append(made);
  return made;
}

function head(table, titles) {
  const row = document.createElement("tr");
  for (const title of titles) cell(row, title, "th", title === "task" ? "text" : "").scope = "col";
  const made = document.createElement("thead");
  made.append(row);
  table.append(made);
}

function options(select, values, chosen) {
  select.replaceChildren(...values.map((value) => Object.assign(document.createElement("option"), { value: value.value ?? value, textContent: value.text ?? value })));
  if (values.some((value) => (value.value ?? value) === chosen)) select.value = chosen;
}

class Explorer {
  constructor(source) {
    this.source = source;
    this.overview = null;
    this.front = null;
    this.first = new Sliders(byId("sliders"), () => this.update());
    this.second = new Sliders(byId("sliders-second"), () => this.update(), " in preference B");
    this.update = latest(() => this.show());
    this.loadFront = latest(() => this.askFront());
    byId("compare").addEventListener("click", () => this.compare(byId("second").hidden));
    for (const name of ["front-x", "front-y"]) byId(name).addEventListener("change", () => this.loadFront());
    byId("version-second").addEventListener("change", () => this.update());
  }

  get comparing() { return !byId("second").hidden; }
  get versionOfSecond() { return byId("version-second").value || null; }
  get format() { return this.overview.classes ? aligned : Charts.plain; }
  get measured() { return this.overview.classes ? "right" : "R²"; }
  tasksOf(version) { return this.overview.versions.find((one) => one.version === version)?.tasks ?? this.overview.tasks; }

  compare(on) {
    byId("second").hidden = !on;
    byId("first-title").hidden = !on;
    byId("compare").setAttribute("aria-pressed", String(on));
    if (on) this.second.set(this.first.weights); else this.update();
  }

  async load() {
    const before = this.overview;
    const overview = this.overview = await this.source.overview();
    byId("measure-name").textContent = this.measured;
    this.first.setTasks(overview.tasks);
    this.second.setTasks(overview.tasks);
    this.first.offer(byId("presets"));
    const [x, y] = [byId("front-x").value || overview.tasks[0], byId("front-y").value || overview.tasks.at(-1)];
    options(byId("front-x"), overview.tasks, x);
    options(byId("front-y"), overview.tasks, y);
    byId("version-of-second").hidden = overview.versions.length < 2;
    options(byId("version-second"), overview.versions.map((one) => ({ value: one.version, text: `${one.version.slice(0, 8)} (${one.tasks.length} tasks${one.active ? ", active" : ""})` })), overview.version);
    this.source.loaded?.(before);
    await this.loadFront();
    await this.update();
    return before;
  }

  async show() {
    if (!this.overview) return;
    const found = await this.measure(this.first, byId("summary"), this.overview.version);
    const other = this.comparing ? await this.measure(this.second, byId("summary-second"), this.versionOfSecond) : null;
    this.drawFront(found, other);
    if (other) this.showComparison(found, other);
    await this.source.also?.(this.first.weights);
  }

  async measure(sliders, place, version) {
    const preference = forVersion(sliders.preference(), this.tasksOf(version));
    const begin = performance.now();
    const found = await this.source.measure(preference, version);
    const milliseconds = performance.now() - begin;
    sliders.showScores(found.scores, this.format);
    if (found.weighted === null) {
      this.source.nothing(place);
      return found;
    }
    const figure = document.createElement("strong");
    figure.textContent = this.format(found.weighted);
    place.replaceChildren(figure, ` ${this.measured}. ${this.source.remark(milliseconds)}`);
    return found;
  }

  showComparison(found, other) {
    const table = byId("comparison");
    const show = this.format, known = (value) => typeof value === "number";
    table.replaceChildren();
    head(table, ["task", "weight A", "weight B", `${this.measured} A`, `${this.measured} B`, "B − A"]);
    const a = this.first.preference(), b = this.second.preference();
    const body = document.createElement("tbody");
    const line = (name, wa, wb, ra, rb) => {
      const row = document.createElement("tr");
      for (const text of [name, wa, wb, known(ra) ? show(ra) : "–", known(rb) ? show(rb) : "–"]) cell(row, text);
      const difference = known(ra) && known(rb) ? rb - ra : 0;
      const size = this.overview.classes ? (100 * Math.abs(difference)).toFixed(1) : Charts.plain(Math.abs(difference));
      cell(row, known(ra) && known(rb) ? `${difference > 0 ? "+" : difference < 0 ? "−" : "±"}${size}` : "–", "td",
        difference > 0 ? "good" : difference < 0 ? "bad" : "");
      body.append(row);
    };
    for (const task of this.overview.tasks) line(task, aligned(a[task]), aligned(b[task]), found.scores[task], other.scores[task]);
    line("weighted", "", "", found.weighted, other.weighted);
    table.append(body);
  }

  async askFront() {
    this.front = null;
    const x = byId("front-x").value, y = byId("front-y").value;
    const overview = this.overview;
    const possible = overview && overview.tasks.length > 1 && Object.keys(overview.validation).length > 0;
    byId("front-choice").hidden = !possible;
    if (!possible) {
      byId("front-note").textContent = overview?.tasks.length === 1
        ? "With one task there is nothing to trade; it shows once a second one is learnt."
        : "The trade-off shows with rows to measure on.";
      byId("front").replaceChildren();
      return;
    }
    this.front = { ...(await this.source.front(x, y, overview.version)), x, y };
    this.update();
  }

  drawFront(found, other) {
    const front = this.front, overview = this.overview;
    if (!front || front.version !== overview.version) return;
    const { x, y } = front;
    const lacking = [x, y].filter((task) => !Object.hasOwn(front.between, task));
    if (lacking.length) {
      byId("front").replaceChildren();
      byId("front-note").textContent = `There are no rows to measure on of ${lacking.join(" and ")}.`;
      return;
    }
    const steps = front.between[x].length - 1;
    // Names of many tasks would cover each other; all show on hovering.
    const labelled = (task) => (front.tasks.length <= MOST_BUTTONS || task === x || task === y ? shortened(task) : "");
    const series = [
      { name: "models between the two tasks", shape: "circle", stroke: "c0", hollow: true, line: true, size: 3,
        points: front.between[x].map((value, k) => ({ x: value, y: front.between[y][k],
          title: `${x} ${percent(1 - k / steps)}, ${y} ${percent(k / steps)}` })) },
      { name: "one task alone", shape: "square", stroke: "c2", fill: "f2",
        points: front.vertices[x].map((value, k) => ({ x: value, y: front.vertices[y][k], label: labelled(front.tasks[k]), title: `only ${front.tasks[k]}` })) },
      { name: this.comparing ? "A" : "this preference", shape: "diamond", stroke: "ink", fill: "fink", size: 7,
        points: [{ x: found.scores[x], y: found.scores[y], label: this.comparing ? "A" : "now" }] },
    ];
    if (other && typeof other.scores[x] === "number" && typeof other.scores[y] === "number") {
      series.push({ name: "B", shape: "triangle", stroke: "c1", fill: "f1", size: 7, points: [{ x: other.scores[x], y: other.scores[y], label: "B" }] });
    }
    Charts.scatter(byId("front"), { label: `trade-off between ${x} and ${y}`, series, ceiling: 1,
      format: overview.classes ? percent : Charts.plain,
      xLabel: `${this.measured} on ${shortened(x)}`, yLabel: `${this.measured} on ${shortened(y)}` });
    byId("front-note").textContent = "Up and to the right is better. The line moves all weight from one task to the other; squares are the models of single tasks.";
  }
}
