//! Reads the extension's catalog entries in a form that tests can compare. Tests compare an updated extension with a
//! fresh installation, and an extension that pg_upgrade restored with a fresh installation on the new server.

/// Lists every member object with everything that a script can define about it: comment, privileges, and the privileges
/// that a dump omits; a function's definition (arguments, defaults, volatility, parallel, strict, rows) and owner; a
/// relation's columns, options, triggers, indexes, constraints and query. Then lists the extension's own row, with the
/// tables whose rows are dumped.
pub const CATALOG: &str = "
    SELECT pg_describe_object(d.classid, d.objid, 0) AS object, concat_ws(' ',
           obj_description(d.objid, d.classid::regclass::name),
           (SELECT concat_ws(' ', i.privtype, i.initprivs) FROM pg_init_privs AS i
             WHERE i.classoid = d.classid AND i.objoid = d.objid AND i.objsubid = 0
               AND i.initprivs IS DISTINCT FROM (SELECT acldefault('f', p.proowner) FROM pg_proc AS p
                                                  WHERE i.classoid = 'pg_proc'::regclass AND p.oid = i.objoid)),
           CASE WHEN d.classid = 'pg_proc'::regclass THEN (
                SELECT concat_ws(' ', p.proowner::regrole, pg_get_functiondef(p.oid),
                                 coalesce(p.proacl, acldefault('f', p.proowner)), pg_get_function_arguments(p.oid))
                  FROM pg_proc AS p WHERE p.oid = d.objid) END,
           CASE WHEN d.classid = 'pg_class'::regclass THEN (
                SELECT concat_ws(' ', c.relkind, c.relowner::regrole, c.relpersistence, c.relacl, c.reloptions,
                       c.relrowsecurity, c.relreplident,
                       CASE WHEN c.relkind = 'v' THEN regexp_replace(pg_get_viewdef(c.oid), '\\mo?id=[0-9]+', 'a number', 'g') END,
                       (SELECT string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                               a.attcollation::regcollation, a.attstorage, a.attacl, col_description(c.oid, a.attnum),
                               (SELECT pg_get_expr(f.adbin, f.adrelid) FROM pg_attrdef AS f
                                 WHERE f.adrelid = c.oid AND f.adnum = a.attnum)), ', '
                               ORDER BY a.attnum) FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0),
                       (SELECT string_agg(concat_ws(' ', t.tgenabled, pg_get_triggerdef(t.oid)), ', '
                               ORDER BY t.tgname) FROM pg_trigger AS t WHERE t.tgrelid = c.oid),
                       (SELECT string_agg(pg_get_indexdef(x.indexrelid), ', ' ORDER BY x.indexrelid::regclass::text)
                          FROM pg_index AS x WHERE x.indrelid = c.oid),
                       (SELECT string_agg(concat_ws(' ', k.conname, pg_get_constraintdef(k.oid)), ', ' ORDER BY k.conname)
                          FROM pg_constraint AS k WHERE k.conrelid = c.oid))
                  FROM pg_class AS c WHERE c.oid = d.objid) END,
           CASE WHEN d.classid = 'pg_namespace'::regclass THEN (
                SELECT concat_ws(' ', n.nspowner::regrole, n.nspacl) FROM pg_namespace AS n WHERE n.oid = d.objid) END)
      FROM pg_depend AS d
      JOIN pg_extension AS e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
     WHERE e.extname = 'pgcache' AND d.deptype = 'e'
     UNION ALL
    SELECT 'the extension', concat_ws(' ', e.extversion, e.extowner::regrole, e.extnamespace::regnamespace, e.extrelocatable,
           e.extconfig::regclass[], e.extcondition, obj_description(e.oid, 'pg_extension'))
      FROM pg_extension AS e WHERE e.extname = 'pgcache'
     ORDER BY 1";
