# shellcheck shell=bash disable=SC2154 # installed and work are stores.sh's, way is in_way's
# Runs Spring's own tests of a cache and of its annotations, from the distribution's source package (no registry
# has them): with the Spring of pom.xml, and, built with that, also with a newer one; and our tests of what these
# do not cover.
current=7.0.10
suites=(AbstractCacheTests config/{AbstractCacheAnnotationTests,AnnotatedClassCacheableService,CacheableService,DefaultCacheableService,SomeCustomKeyGenerator,TestEntity})
suites=("${suites[@]/%/.java}")
folder=$installed/store-spring/suites

fetch_tests() {
    [ ! -e "$folder/TestEntity.java" ] || return 0
    "$ROOT/scripts/source-package.sh" libspring-java libspring-context-java "$folder.tmp"
    mkdir -p "$folder"
    cp "${suites[@]/#/$folder.tmp/spring-context/src/test/java/org/springframework/cache/}" "$folder"
    rm -rf "$folder.tmp"
}

# Builds in a separate folder, because Maven writes next to its sources. Spring's tests are for caches that
# return the same object that was put in. A server returns a copy, so the tests are changed to expect an equal
# object of a serializable class.
build() {
    rm -rf "$work/spring"
    cp -r "$ROOT/stores/spring" "$work/spring"
    cp "$folder"/*.java "$work/spring/src/test/java"
    sed -i 's/assertSame(/assertEquals(/; s/assertNotSame(/assertNotEquals(/; s/hamcrest\.Matchers/hamcrest.CoreMatchers/' "$work/spring/src/test/java/AbstractCacheAnnotationTests.java"
    sed -i 's/class TestEntity/& implements java.io.Serializable/' "$work/spring/src/test/java/TestEntity.java"
    (cd "$work/spring" && mvn -q -B -Dmaven.compiler.parameters=true -Dmaven.test.skip=false -Dmaven.test.skip.exec=true package dependency:build-classpath -Dmdep.outputFile=classpath &&
        mvn -q -B -Dspring.version=$current dependency:build-classpath -Dmdep.outputFile=classpath.current)
}

# CLASSPATH CLASS: runs the tests of this class.
junit() {
    STORE_URL="jdbc:postgresql://$STORE_HOST:$STORE_PORT/$PGDATABASE?user=$PGUSER&prepareThreshold=0" \
        java -XX:TieredStopAtLevel=1 -cp "$work/spring/target/classes:$work/spring/target/test-classes:$(cat "$work/spring/$1")" \
        org.junit.runner.JUnitCore "org.pgcache.spring.$2"
}

tests_with() {
    one "Spring's tests of a cache, $2" junit "$1" SpringTests
    one "Spring's tests of its annotations, $2" junit "$1" AnnotationTests
    one "ours, $2" junit "$1" OwnTests
}

tests() {
    tests_with classpath "$way"
    tests_with classpath.current "$way, Spring $current"
}

# Runs the code of the page, in its own database, in an application of each of the last two Spring Boots.
page() {
    local boot
    psql -X -q -c 'CREATE DATABASE page_of_spring'
    psql -X -qAt -c "SELECT 'CREATE ROLE app LOGIN' WHERE to_regrole('app') IS NULL" | psql -X -q # another page may have made it
    block sql 1 | PGDATABASE=page_of_spring psql -X -q -v ON_ERROR_STOP=1 -o /dev/null
    block xml 1 | grep -qF "$(sed -n 's#^  \(<[gav].*\)#\1#p' pom.xml | head -n 3 | tr -d '\n')"
    for boot in 3.5.16 4.1.2; do
        rm -rf "$work/page"
        cp -r page "$work/page"
        block java 1 >"$work/page/CacheConfiguration.java"
        [[ $boot != 3.* ]] || sed -i 's/boot\.jdbc\.autoconfigure/boot.autoconfigure.jdbc/' "$work/page/CacheConfiguration.java"
        (cd "$work/page" && mvn -q -B "-Dboot.version=$boot" dependency:build-classpath -Dmdep.outputFile=classpath)
        javac -parameters -cp "$work/spring/target/classes:$(cat "$work/page/classpath")" -d "$work/page" "$work/page"/*.java
        java -XX:TieredStopAtLevel=1 -cp "$work/page:$work/spring/target/classes:$(cat "$work/page/classpath")" Application --logging.level.root=warn --spring.main.banner-mode=off \
            "--spring.datasource.url=jdbc:postgresql://$PGHOST_TCP:$PGPORT/page_of_spring" --spring.datasource.username=app | tee "$work/page/said"
        [ "$(cat "$work/page/said")" = $'a 1, a 1\ntrue' ]
        PGDATABASE=page_of_spring psql -X -q -o /dev/null -c "SELECT cache_clear('app_cache')"
    done
}

restarts() { STORE_RESTART=1 one "the server restarts, $way" junit classpath OwnTests; }

fetch_tests
one 'the package is built' build
each_way spring tests
in_way spring 'unlogged bytea direct' restarts
in_way spring 'unlogged bytea pooled' restarts
page_shows
