// connect-pg-simple's own session store with the table of its table.sql, which cache_attach() turns into a cache.
// The only change to the table: the deadline becomes a timestamp with time zone.
'use strict'

const fs = require('node:fs')
const { promisify } = require('node:util')
const expressSession = require('express-session')
const { Pool } = require('pg')
const Store = require('connect-pg-simple')(expressSession)

const table = fs.readFileSync(require.resolve('connect-pg-simple/table.sql'), 'utf8')

async function main () {
  const pool = new Pool()
  const ask = async (sql, ...values) => Object.values((await pool.query(sql, values)).rows[0])[0]
  const store = new Store({ pool, pruneSessionInterval: false })
  const call = name => promisify(store[name].bind(store))
  const [get, set, touch, destroy] = ['get', 'set', 'touch', 'destroy'].map(call)
  const session = (ttl, user) => ({ cookie: { expires: new Date(Date.now() + ttl) }, user })

  await pool.query(table)
  await set('before', session(60000, 'set before it was attached'))
  await pool.query("ALTER TABLE session ALTER expire TYPE timestamptz USING expire AT TIME ZONE current_setting('TimeZone')")
  await pool.query("SELECT cache_attach('session', key_column => 'sid', value_column => 'sess', expires_column => 'expire')")

  console.log('get:', (await get('before')).user)
  await set('one', session(60000, 'first'))
  await set('one', session(60000, 'second'))
  console.log('overwritten:', (await get('one')).user)
  console.log('pgcache sees it:', await ask("SELECT cache_get_json('one', 'session') ->> 'user'"))
  await touch('one', session(3600000, 'second'))
  console.log('touched:', await ask("SELECT cache_ttl('one', 'session') > '50 minutes'"))
  await pool.query("SELECT cache_set_json('two', '{\"cookie\": {}, \"user\": \"of pgcache\"}', '1 minute', 'session')")
  console.log('set by pgcache:', (await get('two')).user)
  await destroy('two')
  console.log('destroyed:', await ask("SELECT cache_exists('two', 'session')"))

  await set('brief', session(1, 'gone soon'))
  await new Promise(resolve => setTimeout(resolve, 2100))
  console.log('expired for pgcache:', await ask("SELECT cache_exists('brief', 'session')"))
  await pool.query("SELECT cache_expire('session')")
  console.log('swept:', await ask("SELECT count(*) = 0 FROM session WHERE sid = 'brief'"))
  console.log('expired for the store:', await get('brief'))

  await pool.query("SELECT cache_detach('session')")
  console.log('detached, and it goes on:', (await get('one')).user)
  await pool.end()
}

main().catch(error => { console.error(error); process.exit(1) })
