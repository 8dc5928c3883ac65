"use strict";
// What the demo's page and the service's share: weights that stay on the simplex while one of them
// is moved, sliders and buttons for them, and light or dark.

const Simplex = {
  uniform(count) {
    return Array.from({ length: count }, () => 1 / count);
  },

  vertex(count, position) {
    return Array.from({ length: count }, (_, k) => (k === position ? 1 : 0));
  },

  // One weight is set; the others keep their proportions, or share alike where they have none.
  move(weights, position, value) {
    const set = Math.min(1, Math.max(0, value));
    if (weights.length === 1) return [1];
    const others = weights.reduce((sum, weight, k) => (k === position ? sum : sum + weight), 0);
    const rest = 1 - set;
    const moved = weights.map((weight, k) => {
      if (k === position) return set;
      return others > 1e-9 ? (weight / others) * rest : rest / (weights.length - 1);
    });
    // What rounding left over goes to the largest of the others, so that the sum is exactly one.
    const total = moved.reduce((sum, weight) => sum + weight, 0);
    let largest = position === 0 ? 1 : 0;
    moved.forEach((weight, k) => { if (k !== position && weight > moved[largest]) largest = k; });
    moved[largest] = Math.max(0, moved[largest] + 1 - total);
    return moved;
  },
};

const MOST_BUTTONS = 8;

// One slider per task, with a field for the weight in per cent and a bar for the task's score.
class Sliders {
  constructor(place, changed, label = "") {
    this.place = place;
    this.changed = changed;
    this.label = label;
    this.tasks = [];
    this.weights = [];
  }

  // New tasks come in with weight zero; tasks that are gone give their weight to the others.
  setTasks(tasks) {
    const before = Object.fromEntries(this.tasks.map((task, k) => [task, this.weights[k]]));
    // A task may be called as something that every object has.
    const known = tasks.map((task) => (Object.hasOwn(before, task) ? before[task] : 0));
    const total = known.reduce((sum, weight) => sum + weight, 0);
    this.tasks = [...tasks];
    this.weights = total > 1e-9 ? known.map((weight) => weight / total) : Simplex.uniform(tasks.length);
    this.place.replaceChildren(...tasks.map((task, k) => this.row(task, k)));
    this.show();
  }

  row(task, k) {
    const row = document.createElement("div");
    row.className = "slider";
    const name = document.createElement("span");
    name.className = "name";
    name.textContent = task;
    const range = document.createElement("input");
    Object.assign(range, { type: "range", min: "0", max: "100", step: "0.1" });
    range.setAttribute("aria-label", `weight of ${task}${this.label}`);
    const number = document.createElement("input");
    Object.assign(number, { type: "number", min: "0", max: "100", step: "1" });
    number.setAttribute("aria-label", `weight of ${task} in per cent${this.label}`);
    const track = document.createElement("span");
    track.className = "track";
    const bar = document.createElement("span");
    bar.className = "bar";
    track.append(bar);
    const score = document.createElement("output");
    score.className = "score";
    range.addEventListener("input", () => this.move(k, Number(range.value) / 100, range));
    number.addEventListener("input", () => {
      if (number.value !== "" && number.validity.valid) this.move(k, Number(number.value) / 100, number);
    });
    number.addEventListener("change", () => this.show());
    row.append(name, range, number, track, score);
    return row;
  }

  move(k, value, source) {
    this.weights = Simplex.move(this.weights, k, value);
    this.show(source);
    this.changed(this.weights);
  }

  set(weights) {
    this.weights = [...weights];
    this.show();
    this.changed(this.weights);
  }

  show(source = null) {
    this.weights.forEach((weight, k) => {
      const [, range, number] = this.place.children[k].children;
      if (range !== source) range.value = 100 * weight;
      range.setAttribute("aria-valuetext", `${(100 * weight).toFixed(0)} per cent`);
      if (number !== source) number.value = Number((100 * weight).toFixed(1));
    });
  }

  showScores(scores, format) {
    this.tasks.forEach((task, k) => {
      const row = this.place.children[k];
      const score = Object.hasOwn(scores, task) ? scores[task] : undefined;
      row.querySelector(".bar").style.width = score === undefined ? "0" : `${100 * Math.max(0, score)}%`;
      row.querySelector(".score").textContent = score === undefined ? "–" : format(score);
    });
  }

  preference() {
    return Object.fromEntries(this.tasks.map((task, k) => [task, this.weights[k]]));
  }

  // A button for all tasks alike, and one for each task alone; a list where these would be too many.
  offer(place) {
    const count = this.tasks.length;
    const button = (text, weights) => {
      const made = Object.assign(document.createElement("button"), { type: "button", textContent: text });
      made.addEventListener("click", () => this.set(weights));
      return made;
    };
    const alone = count <= MOST_BUTTONS
      ? this.tasks.map((task, k) => button(`only ${task}`, Simplex.vertex(count, k)))
      : [this.listed()];
    place.replaceChildren(button("all alike", Simplex.uniform(count)), ...alone);
  }

  listed() {
    const list = document.createElement("select");
    list.setAttribute("aria-label", `only one task${this.label}`);
    list.append(new Option("only one task…", ""), ...this.tasks.map((task, k) => new Option(task, String(k))));
    list.addEventListener("change", () => {
      if (list.value !== "") this.set(Simplex.vertex(this.tasks.length, Number(list.value)));
    });
    return list;
  }
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
