# The front door. As for any Postgres extension:
#
#   make && sudo make install && make installcheck      [PG_CONFIG=/path/to/pg_config]
#
# and for everything else `make help`.

EXTENSION = pgcache
DATA = $(wildcard sql/pgcache--*.sql)

# sql/NAME.sql with expected/NAME.out, in this order; first
# those that need pgcache in shared_preload_libraries
REGRESS_TIER = memory pages depend_memory hot_tier leases partitioned settings
REGRESS = install create entries value_types bytes keys ttl expired hidden hidden_rights renewed defaults negative arguments counters batch scan caches_view privileges \
	row_security read_only plain_sql depend depend_altered rate_limit transactions altered prepare_transaction search_path table_path databases fetch attached routed \
	$(REGRESS_TIER) reinstall
# specs/NAME.spec with expected/NAME.out; likewise
ISOLATION_TIER = memory_drop memory_depend
ISOLATION = visibility repeatable_read add_race replace_race incr_race batch_order clear_and_drop create_race \
	expire_race hidden_race locks_of_others own_version alter_in_use depend_race rate_limit_race $(ISOLATION_TIER)

REGRESS_OPTS = --outputdir=$(BUILD)/regress-out
ISOLATION_OPTS = --outputdir=$(BUILD)/isolation-out --load-extension=pgcache

CHECKS = binaries-check citus-check deb-check docker-check fresh-check postgres-check upgrade-check

# Cargo builds the library: there is no bitcode to install.
override with_llvm = no

all:

help:
	@echo 'make                 build the extension for the Postgres of PG_CONFIG (build/pgNN/pgcache.so)'
	@echo 'make install         install it there; DESTDIR=... for a staged tree'
	@echo 'make installcheck    regression and isolation tests against the running server of that Postgres'
	@echo 'make demo            install what is missing, build, show pgcache in psql, race it with Redis'
	@echo 'make test            install what is missing, build, run the tests in throwaway clusters; ONE=name for one of them'
	@echo 'make test-all        every test there is, on Postgres 15 to 19, those missing built from source'
	@echo 'make cassert         make test on a Postgres 18 that checks itself, built once, and pgcache with all checks of Rust'
	@echo 'make valgrind        the regression tests on a server under valgrind; SESSIONS="fetch:: leases::" of t/, too'
	@echo 'make trust           both of these and Postgres 16 and 17 in parts, which a later run skips at the same commit'
	@echo 'make postgres-check  the tests of Postgres itself, with pgcache preloaded and without'
	@echo 'make upgrade-check   pg_upgrade and dump of a server with caches, from Postgres 15 to 17 (FROM=, TO=)'
	@echo 'make citus-check     caches beside Citus, on a Postgres in which Citus is installed: PG_CONFIG=/path/to/pg_config'
	@echo 'make redis-suite     the Tcl suites of Redis and Valkey over the Redis protocol, on memory caches and tables'
	@echo 'make bench           every benchmark and one page (most of a day; BENCH_OPTS=--quick: 50 minutes)'
	@echo 'make leaks           every function 200,000 times, and what its backend then holds (CALLS=1000000)'
	@echo 'make soak            a mixed load under random kills for five minutes (SOAK_SECONDS=3600)'
	@echo 'make power           sets one deliberate fault after the other and runs the test that must fail with it'
	@echo 'make lint            formatting, clippy, types of all majors, shell scripts, floors, pages'
	@echo 'make audit           licences, sources and versions of what we depend on (cargo deny)'
	@echo 'make coverage        how much of the store its tests reach (cargo llvm-cov)'
	@echo 'make deb             a Debian package; make deb-check tries it on a clean Debian (needs root; SUITE=trixie)'
	@echo 'make binaries        an archive of ready-built libraries, MAJORS="15 16 17 18 19", that installs without Rust'
	@echo 'make binaries-check  that archive, tried on a clean Debian without a compiler (needs root)'
	@echo 'make dist            the release, as tarball and zip file, from the last commit'
	@echo 'make docker-lint     the files of docker/ through their own tools'
	@echo 'make docker-check    the image, built without a registry and tried, and what watches it (needs root)'
	@echo 'make fresh-check     demo and test on a clean system without Rust: SUITE=bookworm, trixie, noble (needs root)'
	@echo 'make clean           stop our throwaway clusters, remove everything that was built'
	@echo
	@echo 'PG_CONFIG=/path/to/pg_config picks a Postgres; PG=17 picks a major and builds it when no package has it.'

demo:
	@scripts/demo.sh

test:
	@scripts/test.sh $(ONE)

test-all cassert valgrind trust redis-suite leaks power audit coverage deb binaries dist:
	@scripts/$@.sh

$(CHECKS):
	@scripts/check.sh $(@:-check=)

soak:
	@scripts/soak.sh $(SOAK_SECONDS)

docker-lint:
	@scripts/check.sh docker lint

bench:
	@scripts/bench.sh $(BENCH_OPTS)

lint:
	@scripts/lint.sh

clean: clean-checkout
clean-checkout:
	@scripts/clean.sh

.PHONY: all help demo test test-all cassert valgrind trust redis-suite leaks power soak bench lint audit coverage deb binaries dist docker-lint \
	$(CHECKS) clean clean-checkout

export PG PG_CONFIG FROM TO CALLS PARTS WITHOUT SESSIONS SUITE MAJORS
export PATH := $(shell scripts/rust-path.sh)
override PG_CONFIG := $(shell PG='$(PG)' PG_CONFIG='$(PG_CONFIG)' scripts/pg-config.sh)

ifneq ($(wildcard $(PG_CONFIG)),)

PGXS := $(shell $(PG_CONFIG) --pgxs)
PG_MAJOR := $(shell $(PG_CONFIG) --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')

# One folder for each major, and for one with assertions: builds for several never overwrite each other.
BUILD := build/pg$(PG_MAJOR)$(if $(findstring --enable-cassert,$(shell $(PG_CONFIG) --configure)),-cassert)

# PGCACHE_PROFILE=checked is the library of the tests (Cargo.toml): quick to build, with our assertions and the feature pauses.
PGCACHE_PROFILE = release
CARGO_FEATURES = pg$(PG_MAJOR)
ifeq ($(PGCACHE_PROFILE),checked)
LIBRARY = $(BUILD)/checked/pgcache.so
CARGO_FEATURES += pauses
else
LIBRARY = $(BUILD)/pgcache.so
endif
RUST_FILES := Cargo.toml Cargo.lock $(shell find src $(wildcard crates) -name '*.rs' -o -name Cargo.toml)

include $(PGXS)

all: $(LIBRARY)

$(LIBRARY): $(RUST_FILES)
	CARGO_TARGET_DIR=$(BUILD)/target PGRX_PG_CONFIG_PATH=$(PG_CONFIG) \
	    cargo build --profile $(PGCACHE_PROFILE) --locked --package pgcache --no-default-features --features '$(CARGO_FEATURES)'
	mkdir -p $(@D)
	cp $(BUILD)/target/$(PGCACHE_PROFILE)/libpgcache.so $@

install: install-library
install-library: $(LIBRARY) installdirs
	$(MKDIR_P) '$(DESTDIR)$(pkglibdir)'
	$(INSTALL_SHLIB) $(LIBRARY) '$(DESTDIR)$(pkglibdir)/pgcache.so'

uninstall: uninstall-library
uninstall-library:
	rm -f '$(DESTDIR)$(pkglibdir)/pgcache.so'

installcheck: $(BUILD)/regress-out $(BUILD)/isolation-out
$(BUILD)/regress-out $(BUILD)/isolation-out:
	$(MKDIR_P) $@

.PHONY: install-library uninstall-library

else

all install installcheck:
	@echo 'pgcache: $(PG_CONFIG) does not exist: install the server headers of a Postgres from 15 to 19 (scripts/need.sh server does), or name its pg_config with PG_CONFIG=.' >&2
	@exit 1

endif
