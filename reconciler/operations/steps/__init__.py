"""Steps that several use cases share: workspace, observation, approval, run, jobs."""
