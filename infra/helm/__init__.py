"""The Helm chart of Firn; its values and their schema are made from the settings of the rooms."""
