// A store for Keyv, and so for cache-manager. Keyv puts its namespace before each key ("shop:key"), and converts each
// value to text unless it is configured otherwise. Deadlines are pgcache's, so SQL does not see an expired value
// either.
import { Cache } from './cache.js'

export class KeyvPgcache extends Cache {
  // Tells Keyv 5 that the store can iterate.
  opts = { dialect: 'postgres' }
  // Keyv sets `namespace`. If it were a declared field, Keyv 6 would expect the store to put the namespace before
  // keys.

  async clear () { await super.clear(this.#prefix(this.namespace)) }

  iterator (namespace) { return this.entries(this.#prefix(namespace)) }

  async disconnect () { await this.end() }

  #prefix (namespace) { return namespace ? `${namespace}:` : '' }
}

// A `wrap` like cache-manager's that works across processes: one of those that miss a key calls `load`. The others
// wait for its result, or use the stale value if the cache has a grace.
export async function wrap (keyv, key, load, ttl = keyv.ttl) {
  const prefix = keyv.useKeyPrefix && keyv.namespace ? `${keyv.namespace}:` : ''
  const stored = await keyv.store.remember(
    key.startsWith(prefix) ? key : prefix + key,
    async () => keyv.serializeData({ value: await load(), expires: ttl ? Date.now() + ttl : undefined }),
    ttl || undefined
  )
  return (await keyv.deserializeData(stored)).value
}
