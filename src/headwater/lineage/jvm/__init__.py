"""Inside the JVM: Java that Spark's own Janino compiles, what it says, and who listens to it from Python."""
