"""An event on its way out: which are worth it, a bounded queue, a transport; never on the job's path."""
