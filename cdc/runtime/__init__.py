"""The process's surroundings: Spark session, Java and its jars, watchdogs, failpoints, progress."""
