#!/usr/bin/env bash
# A program for cargo's RUSTC_WRAPPER. Makes pgrx use the bindings that it contains (as for its documentation) instead
# of generating bindings from the headers of an installed Postgres. So code can be type-checked for a major that is not
# installed.
[[ " $* " != *" --crate-name pgrx_pg_sys "* ]] || set -- "$@" --cfg docsrs
exec "$@"
