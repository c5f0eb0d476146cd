# shellcheck shell=bash
# Sourced by scripts that run programs in other languages. Installs the packages that the programs need, with pinned
# versions, in the cache folder and not in the checkout. All checkouts share one copy, so only one script at a time may
# use it:
#
#   lock_packages        locks it until the script ends, with file 8, which a server must not inherit (8>&-)
#   prepare LANGUAGE     fetches what has changed since the last time
#   free_port            a free TCP port
installed=$(scripts/cache-dir.sh)/examples

lock_packages() {
    mkdir -p "$installed"
    exec 8>"$installed/lock"
    flock 8
}

# Fetches a language's packages, and copies the files that belong beside them. Fetches again only if the list has
# changed.
#   packages_of LANGUAGE LIST FILE... -- COMMAND...
packages_of() {
    local language=$1 list=$2
    local folder=$installed/$language
    shift 2
    mkdir -p "$folder"
    while [ "$1" != -- ]; do
        cp "$1" "$folder"
        shift
    done
    shift
    cmp -s "$list" "$folder/.installed" && return 0
    say "fetching the packages of $language"
    (cd "$folder" && "$@") || die "the packages of $language could not be fetched: check the network."
    echo # Maven does not end its last line
    cp "$list" "$folder/.installed"
}

# NAME FOLDER: fetches the libraries in the folder's pom.xml as jars into $installed/NAME/lib, with the folder's files
# beside them.
libraries_of() {
    packages_of "$1" "$2/pom.xml" "$2"/* -- sh -c \
        'rm -rf lib && mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=lib -DincludeScope=runtime'
}

# The packages of Ruby, Java and PHP come from Debian (need.sh).
prepare() {
    case $1 in
        python)
            mkdir -p "$installed/python"
            cat examples/python/requirements.txt t/drivers/requirements.txt >"$installed/python/all.txt"
            packages_of python "$installed/python/all.txt" examples/python/* -- sh -c \
                'python3 -m venv --clear venv && venv/bin/pip install -q --disable-pip-version-check -r all.txt'
            ;;
        node) packages_of node examples/node/package-lock.json examples/node/* -- npm ci --silent --no-audit --no-fund ;;
        go)
            mkdir -p "$installed/go"
            cp examples/go/* "$installed/go"
            ;;
    esac
}

# Prints the Ruby that has the gem, because the gem may be installed for only one of two Rubies, for example as a
# package for the system's Ruby.
with_pg() { ruby -rpg -e '' 2>/dev/null && echo ruby || echo /usr/bin/ruby; }

# FOLDER PROGRAM
build_go() {
    GOFLAGS='-mod=readonly -buildvcs=false' nice go build -C "$1" -o "$2" . || die "what is in Go does not build: see above."
}

# shellcheck disable=SC2034 # drivers.sh uses it
JDBC_JAR=/usr/share/java/postgresql.jar

free_port() { python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
