// Runs after the code of the page: a visitor comes twice.
app.use((request, response) => {
  request.session.visits = (request.session.visits ?? 0) + 1
  response.end(String(request.session.visits))
})
const server = app.listen(0, '127.0.0.1')
await new Promise(resolve => server.once('listening', resolve))
const visit = cookie => fetch(`http://127.0.0.1:${server.address().port}/`, { headers: { cookie } })
const first = await visit('')
// Reads the whole response: express-session sends the headers at once, and the end of the body when the session is
// stored.
const shown = await first.text()
const second = await visit(first.headers.get('set-cookie').split(';')[0])
console.log(shown, await second.text())
process.exit()
