"""People who log in at the organisation's issuer, by the authorization code flow with PKCE.

`routes.py` is what a browser calls, `issuer.py` asks the issuer, `pending.py` seals a login that has begun,
`sessions.py` keeps who is in, `visitor.py` tells the pages who looks at them. The browser gets no token to
keep: it has a random text that names the session, which lies in this process's memory.
"""
