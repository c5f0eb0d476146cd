// Replaces the server that connect-redis' own test starts; ours is running already.
export const port = 0
export const connect = async () => {}
export const disconnect = async () => {}
