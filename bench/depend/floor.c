/* A row trigger that does nothing: what any AFTER ROW trigger costs. */
#include "postgres.h"

#include "fmgr.h"

PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(nothing);

Datum
nothing(PG_FUNCTION_ARGS)
{
	return PointerGetDatum(NULL);
}
