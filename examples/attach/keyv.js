// Keyv with its own table, which has no column for a deadline: Keyv keeps the deadline within the value.
// cache_attach() adds the column, and the cache's default ttl applies to each row that Keyv writes.
'use strict'

const { Pool } = require('pg')
const { default: Keyv } = require('keyv')
const { default: KeyvPostgres } = require('@keyv/postgres')

async function main () {
  const pool = new Pool()
  const ask = async (sql, ...values) => Object.values((await pool.query(sql, values)).rows[0])[0]
  const uri = `postgresql://${process.env.PGUSER}@/${process.env.PGDATABASE}?host=${process.env.PGHOST}&port=${process.env.PGPORT}`
  const keyv = new Keyv(new KeyvPostgres({ uri, table: 'keyv' }))

  await keyv.set('before', 'set before it was attached')
  await pool.query("SELECT cache_attach('keyv', ttl => '2 seconds')")

  console.log('get:', await keyv.get('before'))
  await keyv.set('a', { n: 1 })
  console.log('object:', await keyv.get('a'))
  console.log('pgcache sees it:', await ask("SELECT cache_get('keyv:a', 'keyv')::jsonb -> 'value'"))
  console.log('it has the default ttl:', await ask("SELECT cache_ttl('keyv:a', 'keyv') <= '2 seconds'"))
  await keyv.delete('a')
  console.log('deleted:', await ask("SELECT cache_exists('keyv:a', 'keyv')"))
  await keyv.set('b', 1)
  await new Promise(resolve => setTimeout(resolve, 2200))
  console.log('expired for pgcache:', await ask("SELECT cache_exists('keyv:b', 'keyv')"))
  await pool.query("SELECT cache_expire('keyv')")
  console.log('swept:', await ask('SELECT count(*) = 0 FROM keyv'))
  console.log('gone for Keyv:', await keyv.get('b'))
  await keyv.set('b', 2)
  console.log('set again:', await keyv.get('b'), await ask("SELECT cache_exists('keyv:b', 'keyv')"))

  await pool.query("SELECT cache_detach('keyv')")
  console.log('detached, and it goes on:', await keyv.get('b'))
  await keyv.disconnect()
  await pool.end()
}

main().catch(error => { console.error(error); process.exit(1) })
