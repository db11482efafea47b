"""The program that runs at the site: shipped as text, Python 3.6 syntax, standard library only, Linux."""
