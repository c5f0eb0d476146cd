# shellcheck shell=bash disable=SC2154 # installed and work are stores.sh's, way is in_way's
# Runs Rails' own tests of cache store behaviour, and our tests of what these do not cover: with the Rails that the
# distribution packages, and with the newest one that runs on the distribution's Ruby. The newest Rails is loaded
# from its source package, as its tests are.
current=7.2
folder=$installed/store-rails

fetch_tests() {
    local versions
    versions="$(dpkg-query -W -f '${Version}' ruby-activesupport) $current"
    [ "$versions" != "$(cat "$folder/versions" 2>/dev/null)" ] || return 0
    mkdir -p "$folder"
    "$ROOT/scripts/source-package.sh" rails ruby-activesupport "$folder/rails"
    "$ROOT/scripts/source-package.sh" rails ruby-activesupport "$folder/current" "2:$current"
    echo "$versions" >"$folder/versions"
}

# FILE RAILS LIBRARY...: uses Debian's Ruby, because Debian's gems belong to it.
tests_of() {
    STORE_URL="host=$STORE_HOST port=$STORE_PORT dbname=$PGDATABASE user=$PGUSER" RAILS=$folder/$2/activesupport \
        /usr/bin/ruby -W0 -Ilib "${@:3}" "test/$1.rb"
}

build() { (cd "$work" && cp -r "$ROOT/stores/rails" gem && cd gem && /usr/bin/gem build activesupport-pgcache.gemspec); }

tests() {
    one "Rails' behaviours, $way" tests_of behaviors_test rails
    one "ours, $way" tests_of own_test rails
    one "Rails' behaviours of $current, $way" tests_of behaviors_test current "-I$folder/current/activesupport/lib"
    one "ours with $current, $way" tests_of own_test current "-I$folder/current/activesupport/lib"
}

# Runs the code of the page, in its own database.
page() {
    psql -X -q -c 'CREATE DATABASE page_of_rails'
    PGDATABASE=page_of_rails psql -X -q -c 'CREATE EXTENSION pgcache'
    block ruby 1 | sed "s/Migration\[.*\]/Migration::Current/" >"$work/migration.rb"
    block ruby 2 >"$work/config.rb"
    PGDATABASE=page_of_rails /usr/bin/ruby -W0 -Ilib test/page.rb "$work/migration.rb" "$work/config.rb"
}

restarts() { STORE_RESTART=1 one "the server restarts, $way" tests_of own_test rails; }

fetch_tests
each_way rails tests
in_way rails 'unlogged bytea direct' restarts
in_way rails 'unlogged bytea pooled' restarts
one 'the gem is built' build
page_shows
