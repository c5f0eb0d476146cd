// Runs Keyv's own tests, from its package @keyv/test-suite; none is left out.
import keyvTestSuite, { keyvIteratorTests } from '@keyv/test-suite'
import Keyv from 'keyv'
import pg from 'pg'
import { KeyvPgcache } from 'pgcache-stores/keyv'
import * as test from 'vitest'
import { caches } from './caches.js'

// Passes the values themselves to the store, for the store's codec.
class KeyvOfValues extends Keyv {
  constructor (options) { super({ ...options, serialize: undefined, deserialize: undefined }) }
}

const pool = new pg.Pool()
test.afterAll(() => pool.end())

for (const [what, options] of Object.entries(caches)) {
  test.describe(what, () => {
    const store = () => new KeyvPgcache({ pool, ...options })
    const Class = options.codec ? KeyvOfValues : Keyv
    keyvTestSuite(test, Class, store)
    keyvIteratorTests(test, Class, store)
  })
}
