"""GitHub, GitLab and Gitea by their REST APIs."""
