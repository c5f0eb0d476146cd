# shellcheck shell=bash disable=SC2154 # installed and work are stores.sh's, way is in_way's
# Spring's own tests of a cache and of its annotations, from the source package of the distribution (no registry has them),
# with the Spring of pom.xml; and what they do not ask for.
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

# In a folder of its own: Maven writes beside its sources. Spring's tests are of caches that give back the object that was
# put in. What comes from a server is a copy: so they are asked for an equal one, of a class that can be serialized.
build() {
    rm -rf "$work/spring"
    cp -r "$ROOT/stores/spring" "$work/spring"
    cp "$folder"/*.java "$work/spring/src/test/java"
    sed -i 's/assertSame(/assertEquals(/; s/assertNotSame(/assertNotEquals(/; s/hamcrest\.Matchers/hamcrest.CoreMatchers/' "$work/spring/src/test/java/AbstractCacheAnnotationTests.java"
    sed -i 's/class TestEntity/& implements java.io.Serializable/' "$work/spring/src/test/java/TestEntity.java"
    (cd "$work/spring" && mvn -q -B -Dmaven.compiler.parameters=true -Dmaven.test.skip=false -Dmaven.test.skip.exec=true package dependency:build-classpath -Dmdep.outputFile=classpath)
}

junit() {
    STORE_URL="jdbc:postgresql://$STORE_HOST:$STORE_PORT/$PGDATABASE?user=$PGUSER&prepareThreshold=0" \
        java -XX:TieredStopAtLevel=1 -cp "$work/spring/target/classes:$work/spring/target/test-classes:$(cat "$work/spring/classpath")" \
        org.junit.runner.JUnitCore "org.pgcache.spring.$1"
}

tests() {
    one "Spring's tests of a cache, $way" junit SpringTests
    one "Spring's tests of its annotations, $way" junit AnnotationTests
    one "ours, $way" junit OwnTests
}

restarts() { STORE_RESTART=1 one "the server restarts, $way" junit OwnTests; }

fetch_tests
one 'the package is built' build
each_way spring tests
in_way spring 'unlogged bytea direct' restarts
in_way spring 'unlogged bytea pooled' restarts
