#!/usr/bin/env bash
# As RUSTC_WRAPPER of cargo: lets pgrx take the bindings that it brings, as for its documentation, instead of making
# them from the headers of an installed Postgres. So code can be type-checked for a major that is not installed.
[[ " $* " != *" --crate-name pgrx_pg_sys "* ]] || set -- "$@" --cfg docsrs
exec "$@"
