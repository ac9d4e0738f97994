"""Forges: GitHub, GitLab and Gitea, by their REST APIs. What a pipeline says in a pull request goes through here."""
