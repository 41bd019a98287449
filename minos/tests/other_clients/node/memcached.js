// The flows of memjs, which speaks memcached's binary protocol, as the user `app`.

import memjs from 'memjs'
import assert from 'node:assert/strict'
import { check, same } from './check.js'

const value = async promise => (await promise).value?.toString()
const large = Buffer.alloc(900_000, 'x')

const user = { username: 'app', password: 'secret' }
for (const [kind, options] of [['without a user', {}], ['with a user', user]]) {
  await check(`memjs, ${kind}`, async () => {
    const client = memjs.Client.create(process.env.MINOS_MEMCACHED, options)
    same(Object.values(await client.flush()), [true])
    same(await client.set('k', 'v', { expires: 100 }), true)
    same(await value(client.get('k')), 'v')
    same(await value(client.get('none')), undefined)
    same([await client.add('k', 'w', {}), await client.replace('k', 'w', {})], [false, true])
    // Its `prepend` appends.
    same([await client.append('k', '>'), await value(client.get('k'))], [true, 'w>'])
    same((await client.increment('n', 2, { initial: 7, expires: 100 })).value, 7)
    same((await client.increment('n', 2, { initial: 7, expires: 100 })).value, 9)
    same((await client.decrement('n', 1, { initial: 7, expires: 100 })).value, 8)
    same([await client.touch('k', 100), await client.delete('k'), await client.delete('k')], [true, true, false])
    same(await client.set('large', large, {}), true)
    same(large.equals((await client.get('large')).value), true)
    await Promise.all(Array.from({ length: 200 }, (_, at) => client.set(`many${at}`, `${at}`, {})))
    same(await value(client.get('many199')), '199')
    const stats = await new Promise((done, failed) => {
      client.stats((error, _, found) => (error ? failed(error) : found.version && done(found)))
    })
    same(Number(stats.curr_items) > 200, true)
    client.close()
  })
}
await check('memjs: a wrong password', async () => {
  const client = memjs.Client.create(process.env.MINOS_MEMCACHED, { ...user, password: 'wrong', retries: 1 })
  await assert.rejects(client.get('k'))
})
