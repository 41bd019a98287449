// The flows of node-redis and of ioredis against a server whose addresses are in the environment.

import { readFileSync } from 'node:fs'
import redis from 'redis'
import { Redis } from 'ioredis'
import { check, fails, same } from './check.js'

const { createClient, RESP_TYPES } = redis
const { MINOS_RESP, MINOS_RESP_TLS, MINOS_CA } = process.env
const ca = readFileSync(MINOS_CA)
const large = '0123456789'.repeat(1_000_000)
const names = Array.from({ length: 64 }, (_, at) => `key${at}`)

async function strings(r) {
  same(await r.flushAll(), 'OK')
  same(await r.set('k', 'v'), 'OK')
  same(await r.get('k'), 'v')
  same(await r.get('none'), null)
  same(await r.setNX('k', 'w'), 0)
  same(await r.set('k', 'w', { condition: 'XX', GET: true, expiration: { type: 'EX', value: 100 } }), 'v')
  same(await r.set('k', 'x', { condition: 'NX' }), null)
  same(await r.set('k', 'x', { expiration: 'KEEPTTL' }), 'OK')
  same(await r.setEx('k', 100, 'y'), 'OK')
  same(await r.pSetEx('k', 100_000, 'y'), 'OK')
  same(await r.getSet('k', 'a'), 'y')
  same(await r.getEx('k', { type: 'EX', value: 100 }), 'a')
  same(await r.getDel('k'), 'a')
  same(await r.append('k', 'hello'), 5)
  same(await r.setRange('k', 1, 'a'), 5)
  same(await r.getRange('k', 1, 2), 'al')
  same(await r.strLen('k'), 5)
  same(await r.mSet({ m1: 'ohmytext', m2: 'mynewtext' }), 'OK')
  same(await r.mSetNX({ m2: '1', m3: '2' }), 0)
  same(await r.mGet(['m1', 'none', 'm2']), ['ohmytext', null, 'mynewtext'])
  same(await r.lcs('m1', 'm2'), 'mytext')
  same(await r.lcsLen('m1', 'm2'), 6)
  same((await r.lcsIdx('m1', 'm2')).len, 6)
  same((await r.lcsIdxWithMatchLen('m1', 'm2')).matches.length, 2)
  same([await r.incr('n'), await r.incrBy('n', 9), await r.decr('n'), await r.decrBy('n', 4)], [1, 10, 9, 5])
  same(Number(await r.incrByFloat('n', 0.5)), 5.5)
  await fails(r.incr('n'), 'ERR value is not an integer or out of range')
  same([await r.setBit('b', 9, 1), await r.getBit('b', 9), await r.bitCount('b')], [0, 1, 1])
  same(await r.set('large', large), 'OK')
  same(await r.get('large') === large, true)
  const buffers = r.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer })
  same(await buffers.set('bytes', Buffer.from([0, 13, 10, 255])), 'OK')
  same(await buffers.get('bytes'), Buffer.from([0, 13, 10, 255]))
}

async function expiries(r) {
  const at = Math.floor(Date.now() / 1000) + 3600
  same(await r.set('k', 'v'), 'OK')
  same([await r.ttl('k'), await r.pTTL('none')], [-1, -2])
  same([await r.expire('k', 60, 'NX'), await r.expire('k', 1, 'GT'), await r.pExpire('k', 30_000, 'LT')], [1, 0, 1])
  same([await r.expireAt('k', at), await r.expireTime('k')], [1, at])
  same([await r.pExpireAt('k', at * 1000 + 7), await r.pExpireTime('k')], [1, at * 1000 + 7])
  same([await r.persist('k'), await r.persist('k')], [1, 0])
}

async function keys(r) {
  same(await r.flushDb(), 'OK')
  // node-redis sends what is asked for at once as one pipeline.
  same(new Set(await Promise.all(names.map(name => r.set(name, '1')))), new Set(['OK']))
  same(await r.mGet(names), names.map(() => '1'))
  const seen = new Set()
  const options = { MATCH: 'key*', TYPE: 'string', COUNT: 10 }
  for await (const found of r.scanIterator(options)) found.forEach(key => seen.add(key))
  same(seen, new Set(names))
  same([(await r.keys('key1?')).length, await r.dbSize()], [10, 64])
  same(names.includes(await r.randomKey()), true)
  same([await r.exists(['key1', 'none']), await r.touch('key1'), await r.type('key1')], [1, 1, 'string'])
  same([await r.rename('key1', 'r'), await r.renameNX('r', 'key2'), await r.copy('r', 's')], ['OK', 0, 1])
  same([await r.del(['r', 'none']), await r.unlink('s')], [1, 1])
  same([await r.objectEncoding('key2'), await r.touch('none')], ['int', 0])
  same(await r.memoryUsage('key2') > 0, true)
}

async function transactions(r) {
  same(await r.multi().set('t', '1').incr('t').get('t').exec(), ['OK', 2, '2'])
  await r.watch('t')
  await other.set('t', '5')
  await fails(r.multi().incr('t').exec(), 'One (or more) of the watched keys has been changed')
  await r.watch('t')
  same(await r.multi().incr('t').exec(), [6])
}

async function server(r) {
  same(await r.ping(), 'PONG')
  same(await r.echo('e'), 'e')
  same(/redis_version:/.test(await r.info()), true)
  same(Number((await r.configGet('maxmemory')).maxmemory) > 0, true)
  const commands = await r.command()
  same(commands.length, await r.commandCount())
  const ofAdmins = { type: 'ACLCAT', value: 'admin' }
  same((await r.commandList({ FILTERBY: ofAdmins })).includes('config|set'), true)
  same((await r.commandInfo(['get']))[0].arity, 2)
  same(await r.commandGetKeys(['MSET', 'a', '1', 'b', '2']), ['a', 'b'])
  same([await r.clientGetName(), await r.clientId() > 0], ['flows', true])
  same([(await r.clientInfo()).name, (await r.clientList()).some(one => one.name === 'flows')], ['flows', true])
  same(Math.abs(Number((await r.time())[0]) - Date.now() / 1000) < 60, true)
  same([await r.wait(0, 1000), await r.configResetStat()], [0, 'OK'])
  await fails(r.lPush('l', '1'), "ERR unknown command 'LPUSH'")
}

const [host, port] = MINOS_RESP.split(':')
const tls = { host: 'localhost', port: Number(MINOS_RESP_TLS.split(':')[1]), tls: true, ca }
const user = { username: 'app', password: 'secret' }
const other = await createClient({ url: `redis://${MINOS_RESP}` }).connect()
for (const [kind, options] of Object.entries({
  RESP2: { url: `redis://${MINOS_RESP}`, RESP: 2 },
  RESP3: { url: `redis://${MINOS_RESP}`, RESP: 3 },
  'TLS and user': { socket: tls, ...user },
})) {
  const client = createClient({ ...options, name: 'flows' })
  client.on('error', error => console.error(error))
  await client.connect()
  for (const flow of [strings, expiries, keys, transactions, server]) {
    await check(`node-redis, ${kind}: ${flow.name}`, () => flow(client))
  }
  client.destroy()
}
other.destroy()
await check('node-redis: a wrong password', async () => {
  const client = createClient({ socket: { ...tls, reconnectStrategy: false }, ...user, password: 'wrong' })
  client.on('error', () => {})
  await fails(client.connect(), 'WRONGPASS')
})

for (const [kind, options] of Object.entries({
  plain: { host, port: Number(port) },
  'TLS and user': { host: 'localhost', port: tls.port, tls: { ca }, ...user },
})) {
  await check(`ioredis, ${kind}`, async () => {
    const r = new Redis({ ...options, connectionName: 'flows', maxRetriesPerRequest: 2 })
    same(await r.flushall(), 'OK')
    same(await r.set('k', 'v', 'EX', 100, 'NX'), 'OK')
    same(await r.getBuffer('k'), Buffer.from('v'))
    same(await r.pipeline().incr('n').mget('k', 'none').lpush('l', 1).exec().then(all => all.length), 3)
    same(await r.multi().incr('n').get('n').exec(), [[null, 2], [null, '2']])
    const seen = []
    for await (const found of r.scanStream({ match: '?', count: 10 })) seen.push(...found)
    same(seen.sort(), ['k', 'n'])
    same(await r.set('large', large), 'OK')
    same(await r.get('large') === large, true)
    same(await r.client('GETNAME'), 'flows')
    r.disconnect()
  })
}
