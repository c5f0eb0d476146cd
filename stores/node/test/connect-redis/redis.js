// All that connect-redis' own test asks of a client of Redis by itself: how many seconds an entry has left.
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
