import { fileURLToPath } from 'node:url'

export default {
  test: {
    include: ['*.test.js', 'connect-redis/index_test.ts'],
    fileParallelism: false,
    testTimeout: 60_000,
    alias: { redis: fileURLToPath(new URL('connect-redis/redis.js', import.meta.url)) }
  }
}
