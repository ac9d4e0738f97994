"""Clients for GitHub, GitLab and Gitea."""
