#compdef lazaret
# zsh completion of lazaret; generated, do not edit.

_lazaret() {
    local cmd='' word='' prev=${words[CURRENT-1]}
    local -a flags items
    for word in ${words[2,CURRENT-1]}; do
        case "$cmd $word" in
            ' init') cmd='init' ;;
            ' doctor') cmd='doctor' ;;
            ' status') cmd='status' ;;
            ' domain') cmd='domain' ;;
            ' config') cmd='config' ;;
            ' trust') cmd='trust' ;;
            ' completion') cmd='completion' ;;
            ' help') cmd='help' ;;
            'config show') cmd='config show' ;;
            'config check') cmd='config check' ;;
        esac
    done
    case "$cmd $prev" in
        'init --scope') compadd -- user system; return ;;
        'init --runtime-path') _files; return ;;
        'init --podman-version') _message 'VERSION'; return ;;
        'domain --profile'|'domain -p') _message 'NAME'; return ;;
        'domain --config') _files; return ;;
        'config show --profile') _message 'NAME'; return ;;
        'config show --config') _files; return ;;
        'config show --workspace') _files; return ;;
        'config check --config') _files; return ;;
        'config check --workspace') _files; return ;;
    esac
    case $cmd in
        '')
            flags=(
                '--version:print version and commit'
                '--help:show help'
                '-h:show help'
            )
            items=(
                'init:register lazaret as a runtime of podman'
                'doctor:check whether this machine can run sandboxes'
                'status:show the domains in use, their containers and sessions'
                'domain:print the domain of a workspace: its hash and its paths'
                'config:show or check the configuration'
                'trust:let the configuration file of a workspace loosen the sandbox'
                'completion:print the completion script of a shell'
                'help:show the help of a command'
            )
            ;;
        'init')
            flags=(
                '--scope:whose podman: user|system; root means system if not told otherwise, others user'
                '--runtime-path:FILE to register; beside lazaret if not given'
                '--podman-version:write for podman VERSION, not for the installed one'
                '--dry-run:show the change and touch nothing'
                '--uninstall:remove the drop-in again'
                '--force:replace or remove a drop-in that was changed by hand; a copy is kept'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'doctor')
            flags=(
                '--json:print one JSON object with all checks'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'status')
            flags=(
                '--json:print one JSON object'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'domain')
            flags=(
                '--profile:the domain of profile NAME instead of the default one'
                '-p:the domain of profile NAME instead of the default one'
                '--config:also read FILE, above the other layers'
                '--json:print one JSON object'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'config')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
                'show:print every effective value and where it comes from'
                'check:report every mistake with file, line and key'
            )
            ;;
        'config show')
            flags=(
                '--profile:leave out the other profiles than NAME'
                '--json:print one JSON object'
                '--config:read FILE above all other layers'
                '--workspace:take the lazaret.toml of DIR'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
        'config check')
            flags=(
                '--config:read FILE above all other layers'
                '--workspace:take the lazaret.toml of DIR'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'trust')
            flags=(
                '--yes:do not ask'
                '-y:do not ask'
                '--revoke:trust the file no longer'
                '--list:list the trusted files'
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            [[ $PREFIX == -* ]] || { _files; return }
            ;;
        'completion')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
                'bash'
                'zsh'
                'fish'
            )
            ;;
        'help')
            flags=(
                '--help:show help'
                '-h:show help'
            )
            items=(
            )
            ;;
    esac
    if [[ $PREFIX == -* ]]; then
        _describe -o -t options option flags
    else
        _describe -t commands command items
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _lazaret "$@"
else
    compdef _lazaret lazaret
fi
