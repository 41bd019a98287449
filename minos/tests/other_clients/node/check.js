// Prints a line for each check.

import assert from 'node:assert/strict'

export const same = assert.deepEqual

export async function check(name, flow) {
  try {
    await flow()
    console.log(`ok ${name}`)
  } catch (error) {
    console.log(`failed ${name}: ${error.stack.replace(/\s*\n\s*/g, ' ').slice(0, 600)}`)
  }
}

export async function fails(promise, part) {
  await assert.rejects(promise, error => error.message.includes(part))
}
