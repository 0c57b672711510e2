# Sourced by `test`: downloads what has no package.

KAFKA_VERSION=4.1.0

# Kafka has no package; its artefacts are what the project's own build publishes.
install_kafka() {
  local work
  if [ -e "$cache/kafka-$KAFKA_VERSION/kafka-tools-$KAFKA_VERSION.jar" ]; then
    echo "Apache Kafka $KAFKA_VERSION is in the cache"
    return
  fi
  echo "downloading Apache Kafka $KAFKA_VERSION"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/download.XXXXXX")
  cat >"$work/pom.xml" <<XML
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>none</groupId><artifactId>none</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>$KAFKA_VERSION</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
      <version>$KAFKA_VERSION</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
XML
  mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies \
    -DoutputDirectory="$work/jars" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; rm -rf "$work"; fail "Maven could not download Apache Kafka."; }
  chmod -R go+rX "$work/jars"
  rm -rf "$cache/kafka-$KAFKA_VERSION"
  mv "$work/jars" "$cache/kafka-$KAFKA_VERSION"
  rm -rf "$work"
}

install_kafka
