# Sourced by `test`: downloads what has no package.

ELASTICMQ_VERSION=1.7.1

install_elasticmq() {
  local work
  if [ -e "$cache/elasticmq-$ELASTICMQ_VERSION" ]; then
    echo "ElasticMQ $ELASTICMQ_VERSION is in the cache"
    return
  fi
  echo "downloading ElasticMQ $ELASTICMQ_VERSION"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/download.XXXXXX")
  cat >"$work/pom.xml" <<XML
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>none</groupId><artifactId>none</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.elasticmq</groupId><artifactId>elasticmq-server_2.13</artifactId>
      <version>$ELASTICMQ_VERSION</version>
    </dependency>
  </dependencies>
</project>
XML
  mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies \
    -DoutputDirectory="$work/jars" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; rm -rf "$work"; fail "Maven could not download ElasticMQ."; }
  chmod -R go+rX "$work/jars"
  mv "$work/jars" "$cache/elasticmq-$ELASTICMQ_VERSION"
  rm -rf "$work"
}

install_elasticmq
