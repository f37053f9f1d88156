from wherefrom.cli import app

app(prog_name="wherefrom")
