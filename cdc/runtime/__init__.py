"""What runs us: the Spark session, Java and its jars, watchdogs, failpoints, progress."""
