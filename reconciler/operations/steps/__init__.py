"""Steps that several use cases share: the workspace, what clusters say, approval, the run, its jobs."""
