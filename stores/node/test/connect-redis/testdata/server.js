// connect-redis' own test starts a server here. Ours runs.
export const port = 0
export const connect = async () => {}
export const disconnect = async () => {}
