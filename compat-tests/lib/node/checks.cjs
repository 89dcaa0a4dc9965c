// What a program of a suite in JavaScript tells, a line for each check (lib/script.py), and how it waits.
const { randomUUID } = require("crypto");

const LIMIT_MS = 30000;
const unique = (word) => `${word}-${randomUUID().slice(0, 8)}`;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function report(name, work) {
  try {
    await work();
    console.log(`passed ${name}`);
  } catch (error) {
    console.log(`failed ${name} -- ${error.name}: ${error.message}`.replace(/\n/g, " "));
  }
}

function same(got, wanted, what) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`${what}: ${a} instead of ${b}`);
}

async function until(reached, what) {
  const end = Date.now() + LIMIT_MS;
  while (!(await reached())) {
    if (Date.now() > end) throw new Error(`not within ${LIMIT_MS} ms: ${what}`);
    await pause(100);
  }
}

module.exports = { LIMIT_MS, unique, pause, report, same, until };
