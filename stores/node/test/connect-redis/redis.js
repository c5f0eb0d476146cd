// The part of a Redis client that connect-redis' own test calls directly: how many seconds an entry has left.
import pg from 'pg'

export const createClient = () => {
  const pool = new pg.Pool()
  return {
    pool,
    connect: async () => {},
    destroy: () => pool.end(),
    ttl: async key => {
      const ask = 'SELECT round(extract(epoch FROM cache_ttl($1, $2::regclass)))::int AS ttl'
      return (await pool.query(ask, [key, process.env.CACHE])).rows[0].ttl
    }
  }
}
