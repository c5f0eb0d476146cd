# shellcheck shell=bash disable=SC2154,SC2164 # stores.sh sources it, has `installed`, and ends at a failure
# gocache's own tests check the calls that each of its stores makes to a mock, so they cannot test another store.
# gokv's tests work for any store, and come as a module.
psql -X -q -o /dev/null <<SQL
SELECT cache_create('texts'), cache_create('texts_memory', storage => 'memory'),
       cache_create('bytes', value_type => 'bytea'), cache_create('bytes_memory', storage => 'memory', value_type => 'bytea');
SQL

# Runs the code of the page, in its own module and database, set up as the page says.
# shellcheck disable=SC2317 # a separate shell calls it and ends at a failure
page() {
    local folder=$installed/stores-go/page here=$PWD
    psql -X -q -c 'CREATE DATABASE page_of_go'
    export PGDATABASE=page_of_go
    [ "$(block sql 1 | psql -X -qAt)" = $'pages\nobjects' ]
    rm -rf "$folder"
    mkdir -p "$folder"
    block go 1 >"$folder/main.go"
    cp test/go.sum "$folder"
    sed "s#^module .*#module page#; s#=> ../#=> $here#; /gokv/d" test/go.mod >"$folder/go.mod"
    [ "$(go run -C "$folder" -mod=mod .)" = $'<h1>Hello</h1> <nil>\n<nil>\n<nil>\na report <nil>' ]
}

export GOFLAGS='-mod=readonly -buildvcs=false'
mkdir -p "$installed/stores-go"
one 'it builds' nice go vet .
page_shows
cd test
one 'its tests build' nice go test -c -o "$installed/stores-go/tests" .
tests() { timeout "$patience" "$installed/stores-go/tests" -test.v "$@"; }
one "gokv's own tests, through gocache's marshaler" tests -test.run TestGokvsOwn
one 'what those do not ask' tests -test.skip 'TestGokvsOwn|TestAfterARestart'
RESTART=yes one 'after a restart' tests -test.run TestAfterARestart

export PGHOST=$POOLED_HOST PGPORT=$POOLED_PORT POOLED=yes
one "gokv's own tests, through pgbouncer" tests -test.run TestGokvsOwn
one 'what those do not ask, through pgbouncer' tests -test.skip 'TestGokvsOwn|TestAfterARestart'
RESTART=yes one 'after a restart, through pgbouncer' tests -test.run TestAfterARestart
